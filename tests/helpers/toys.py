"""Small models without a checkpoint, of every kind of part; of the first three no size is a whole number of lanes."""

DENSE = """mks 1

model dense {
  size d        = 72
  size layers   = 3
  size ffn      = 200
  size vocab    = 300
  size q_heads  = 4
  size kv_heads = 2
  size head     = 24
  weights {
    embed      : bf16[vocab, d]  "embed"
    final_norm : bf16[d]         "norm"
    out        : bf16[vocab, d]  "out"
  }
  part attention {
    weights "{layer}." {
      norm : bf16[d]                   "norm"
      wq   : bf16[q_heads * head, d]   "wq"
      wk   : bf16[kv_heads * head, d]  "wk"
      wv   : bf16[kv_heads * head, d]  "wv"
      wo   : bf16[d, q_heads * head]   "wo"
    }
    cache { keys, values : bf16[kv_heads, head] }
    x = rms_norm(h, norm, 1e-5)
    q = rope(heads(wq @ x, q_heads), position, theta = 1e4)
    keys[position]   = rope(heads(wk @ x, kv_heads), position, theta = 1e4)
    values[position] = heads(wv @ x, kv_heads)
    h = h + wo @ flat(attend(q, keys, values, scale = head ** -0.5))
  }
  part mlp {
    weights "{layer}." {
      norm     : bf16[d]       "mlp norm"
      gate, up : bf16[ffn, d]  "{name}"
      down     : bf16[d, ffn]  "down"
    }
    x = rms_norm(h, norm, 1e-5)
    a = silu(gate @ x) * (up @ x)
    h = h + down @ a
  }
  step {
    h = embed[token]
    for layer in 0 .. layers {
      attention
      mlp
    }
    logits = f32(out @ rms_norm(h, final_norm, 1e-5))
  }
}
"""

DELTA = """mks 1

model delta_net {
  size d        = 72
  size layers   = 4
  size ffn      = 136
  size vocab    = 300
  size q_heads  = 4
  size kv_heads = 2
  size head     = 24
  size k_heads  = 2
  size v_heads  = 4
  size key      = 16
  size val      = 24
  size taps     = 4
  list full     = 1 .. layers by 3
  weights {
    embed      : bf16[vocab, d]  "embed"
    final_norm : bf16[d]         "norm"
    out        : bf16[vocab, d]  "out"
  }
  part delta {
    weights "{layer}." {
      norm    : bf16[d]                    "norm"
      wq      : bf16[k_heads * key, d]     "wq"
      wk      : bf16[k_heads * key, d]     "wk"
      wv      : bf16[v_heads * val, d]     "wv"
      wz      : bf16[v_heads * val, d]     "wz"
      wb      : bf16[v_heads, d]           "wb"
      wa      : bf16[v_heads, d]           "wa"
      cq      : bf16[k_heads * key, taps]  "cq"
      ck      : bf16[k_heads * key, taps]  "ck"
      cv      : bf16[v_heads * val, taps]  "cv"
      a_log   : f32[v_heads]               "a_log"
      dt_bias : f32[v_heads]               "dt_bias"
      gain    : bf16[val]                  "gain"
      wo      : bf16[d, v_heads * val]     "wo"
    }
    state {
      pq, pk : bf16[taps - 1, k_heads * key]
      pv     : bf16[taps - 1, v_heads * val]
      S      : f32[v_heads, key, val]
    }
    x  = rms_norm(h, 1 + norm, 1e-6)
    q  = silu(causal_conv(wq @ x, cq, pq))
    k  = silu(causal_conv(wk @ x, ck, pk))
    v  = silu(causal_conv(wv @ x, cv, pv))
    qn = l2_norm(heads(q, k_heads), 1e-6) * key ** -0.5
    kn = l2_norm(heads(k, k_heads), 1e-6)
    decay = f32(-exp(a_log) * softplus(wa @ x + dt_bias))
    rate  = sigmoid(wb @ x)
    o = delta_rule(qn, kn, heads(v, v_heads), decay, rate, S)
    y = rms_norm(o, gain, 1e-6) * silu(heads(wz @ x, v_heads))
    h = h + wo @ flat(y)
  }
  part attention {
    weights "{layer}." {
      norm : bf16[d]                   "norm"
      wq   : bf16[q_heads * head, d]   "wq"
      wk   : bf16[kv_heads * head, d]  "wk"
      wv   : bf16[kv_heads * head, d]  "wv"
      wo   : bf16[d, q_heads * head]   "wo"
    }
    cache { keys, values : bf16[kv_heads, head] }
    x = rms_norm(h, norm, 1e-6)
    keys[position]   = rope(heads(wk @ x, kv_heads), position, theta = 1e4, width = head / 3)
    values[position] = heads(wv @ x, kv_heads)
    q = rope(heads(wq @ x, q_heads), position, theta = 1e4, width = head / 3)
    h = h + wo @ flat(attend(q, keys, values, scale = head ** -0.5))
  }
  part mlp {
    weights "{layer}." {
      norm     : bf16[d]       "mlp norm"
      gate, up : bf16[ffn, d]  "{name}"
      down     : bf16[d, ffn]  "down"
    }
    x = rms_norm(h, norm, 1e-6)
    h = h + down @ (silu(gate @ x) * (up @ x))
  }
  step {
    h = embed[token]
    for layer in 0 .. layers {
      attention when layer in full else delta
      mlp
    }
    logits = f32(out @ rms_norm(h, final_norm, 1e-6))
  }
}
"""

MOE = """mks 1

model moe_net {
  size d       = 72
  size layers  = 2
  size vocab   = 300
  size heads   = 4
  size q_lora  = 40
  size kv_lora = 48
  size nope    = 16
  size common  = 8
  size vdim    = 24
  size latent  = 64
  size experts = 8
  size moe     = 48
  size shared  = 88
  const top    = 3
  weights {
    embed      : bf16[vocab, d]  "embed"
    final_norm : bf16[d]         "norm"
    out        : bf16[vocab, d]  "out"
  }
  part mla {
    weights "{layer}." {
      norm    : bf16[d]                               "norm"
      q_a     : bf16[q_lora, d]                       "q_a"
      q_b     : bf16[heads * (nope + common), q_lora]  "q_b"
      kv_a    : bf16[kv_lora + common, d]             "kv_a"
      kv_b    : bf16[heads * (nope + vdim), kv_lora]  "kv_b"
      wo      : bf16[d, heads * vdim]                 "wo"
    }
    cache {
      lat : bf16[kv_lora]
      com : bf16[common]
    }
    x  = rms_norm(h, norm, 1e-5)
    qa = q_a @ x
    c, s = split(kv_a @ x, kv_lora, common)
    q  = heads(q_b @ qa, heads)
    lat[position] = c
    com[position] = s
    h = h + wo @ flat(attend_latent(q, lat, com, kv_b, scale = (nope + common) ** -0.5))
  }
  part moe {
    weights "{layer}." {
      norm   : bf16[d]                     "moe norm"
      router : bf16[experts, d]            "router"
      bias   : f32[experts]                "bias"
      z_down : bf16[latent, d]             "z_down"
      z_norm : bf16[latent]                "z_norm"
      z_up   : bf16[d, latent]             "z_up"
      s_gate : bf16[shared, d]             "s_gate"
      s_up   : bf16[shared, d]             "s_up"
      s_down : bf16[d, shared]             "s_down"
      gate   : bf16[experts, moe, latent]  "gate"
      up     : bf16[experts, moe, latent]  "up"
      down   : bf16[experts, latent, moe]  "down"
    }
    x = rms_norm(h, norm, 1e-5)
    score  = f32(sigmoid(router @ x))
    chosen = route(score, bias, top)
    z = z_down @ x
    y = experts(z, chosen) { e -> down[e] @ (silu(gate[e] @ z) * (up[e] @ z)) }
    h = h + z_up @ rms_norm(y, z_norm, 1e-5) + s_down @ (silu(s_gate @ x) * (s_up @ x))
  }
  step {
    h = embed[token]
    for layer in 0 .. layers {
      mla
      moe
    }
    logits = f32(out @ rms_norm(h, final_norm, 1e-5))
  }
}
"""
# Three of four experts a row, by scores as they are.
SIGNED_EXPERTS = """mks 1

model signs {{
  size d       = 64
  size experts = 4
  size moe     = 64
  size layers  = 1
  size vocab   = 70
  weights {{
    embed : bf16[vocab, d]  "e"
  }}
  part p {{
    weights "{{layer}}." {{
      router   : bf16[experts, d]        "r"
      gate, up : {codec}[experts, moe, d]  "{{name}}"
      down     : {codec}[experts, d, moe]  "d"
    }}
    x      = rms_norm(h, 1, 1e-5)
    score  = f32(router @ x)
    picked = route(score, 0, 3)
    y      = experts(x, picked) {{ e -> down[e] @ (silu(gate[e] @ x) * (up[e] @ x)) }}
    h      = h + y
  }}
  step {{
    h = embed[token]
    for layer in 0 .. layers {{
      p
    }}
    logits = f32(embed @ h)
  }}
}}

schedule one for signs {{
  target v5e 1x1
  rows 2
  context 256
}}
"""
# Every name that a kernel uses for its own arrays.
KERNEL_NAMES = """mks 1

model names {
  size d      = 64
  size n      = 2
  size w      = 32
  size layers = 2
  weights {
    embed : bf16[256, d]  "e"
  }
  part ids {
    weights "{layer}." {
      a : bf16[n * w, d]  "a"
      o : bf16[d, n * w]  "o"
    }
    cache { keys, values : bf16[n, w] }
    tokens  = a @ positions
    at      = tokens * 0.5
    kept    = at + 1
    scalars = kept * 0.25
    chosen  = scalars - at
    keys[position]   = heads(a @ positions, n)
    values[position] = heads(chosen, n)
    ids = heads(a @ positions + kept, n)
    positions = positions + o @ flat(attend(ids, keys, values, scale = 1))
  }
  step {
    positions = embed[token]
    for layer in 0 .. layers {
      ids
    }
    logits = f32(embed @ positions)
  }
}

schedule one for names {
  target v5e 1x1
  rows 2
  context 256
  stream lookups {
    slots = 2
    slot  = 2560 KiB
    ids : a, o
  }
}
"""
# Three lanes' widths of columns over two cores: the second one has eight.
SCATTERED = """mks 1

model sums {{
  size d      = 264
  size n      = 8
  size layers = 2
  size vocab  = 300
  size ffn    = 64
  weights {{
    embed : bf16[vocab, d]  "e"
  }}
  part p {{
    weights "{{layer}}." {{
      up   : bf16[ffn, d]  "up"
      down : bf16[d, ffn]  "down"
      w    : bf16[d, d]    "w"
      g, m : bf16[d]       "{{name}}"
    }}
    x = rms_norm(h, g, 1e-5)
    {first}
    {then}
  }}
  step {{
    h = embed[token]
    for layer in 0 .. layers {{
      p
    }}
    logits = f32(embed @ rms_norm(h, 1, 1e-5))
  }}
}}

schedule two for sums {{
  target v5e 1x2
  rows 2
  context 256
  mesh tp = 2
  shard tp : ffn
  reduce p.{value} (by = scatter, wire = f32)
}}
"""
