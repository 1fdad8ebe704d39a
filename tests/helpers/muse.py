"""Muse Spark in numpy: one token at a time, every earlier key and value in lists, no ring and no tile.

Written from a description of the model, not from its definition. `r16` rounds to bf16, or does nothing.
"""

import numpy as np

NAMES = "norm wq wk wv wg wo g"


def rms(x, eps):
    return x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + eps)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def turn(x, position, theta):
    """Rotate-half rope over all channels of `[heads, n]`."""
    n = x.shape[-1]
    angle = position * theta ** (-np.arange(0, n, 2) / n)
    a, b = x[..., : n // 2], x[..., n // 2 :]
    return np.concatenate([a * np.cos(angle) - b * np.sin(angle), b * np.cos(angle) + a * np.sin(angle)], -1)


class Muse:
    """`sizes` are the definition's; `weight(name, layer)` gives arrays."""

    def __init__(self, sizes, weight, r16=lambda x: x):
        self.n, self.weight, self.r16 = sizes, weight, r16
        self.keys = [[] for _ in range(sizes["layers"])]
        self.values = [[] for _ in range(sizes["layers"])]

    def residual(self, s, branch, gate):
        u = gate / 0.3
        beta = sigmoid(u)
        alpha = np.sqrt(np.maximum(sigmoid(-u) * (1 + beta), 1e-3))
        return alpha * s + beta * branch

    def token(self, token, position):
        """Logits of one more token."""
        r16, w = self.r16, self.weight
        s = r16(rms(w("embed", None)[token], 1e-5))
        for layer in range(self.n["layers"]):
            s = self.attention(s, layer, position)
            s = self.experts(s, layer)
        x = r16(rms(r16(s), 1e-5) * w("final_norm", None))
        logits = 20 * np.tanh(w("out", None) @ x * 2**-2.5 / 20)
        logits[self.n["used"] :] = -np.inf
        return logits

    def attention(self, s, layer, position):
        n, r16 = self.n, self.r16
        norm, wq, wk, wv, wg, wo, gate = (self.weight(f"attention.{name}", layer) for name in NAMES.split())
        full = layer % 4 == 1
        x = r16(rms(s, 1e-5) * r16(1 + norm))
        q = r16(rms((wq @ x).reshape(n["q_heads"], -1), 1e-5))
        k = r16(rms((wk @ x).reshape(n["kv_heads"], -1), 1e-5))
        if not full:
            q, k = r16(turn(q, position, 5e5)), turn(k, position, 5e5)
        self.keys[layer].append(r16(k))
        self.values[layer].append(r16((wv @ x).reshape(n["kv_heads"], -1)))
        first = 0 if full else max(0, position - n["window"] + 1)
        group = n["q_heads"] // n["kv_heads"]
        keys, values = (np.repeat(np.stack(c[layer][first:]), group, axis=1) for c in (self.keys, self.values))
        score = np.einsum("hd,shd->hs", q, keys) * 5.4730064863875 / np.sqrt(n["head"])
        weight = np.exp(score - score.max(-1, keepdims=True))
        o = r16(np.einsum("hs,shd->hd", weight / weight.sum(-1, keepdims=True), values))
        y = r16(rms(o, 1e-5) * sigmoid((wg @ x).reshape(o.shape)))
        return self.residual(s, r16(rms(r16(wo @ y.reshape(-1)), 1e-8)), gate)

    def experts(self, s, layer):
        n, r16 = self.n, self.r16
        norm, router, bias, pre, pre_norm, each_norm, post, end_norm, gate, w_gate, w_up, w_down = (
            self.weight(f"moe.{name}", layer)
            for name in "norm router bias pre pre_norm each_norm post end_norm g gate up down".split()
        )
        x = r16(rms(s, 1e-5) * r16(1 + norm))
        score = sigmoid(router @ x * 2**-2.5)
        chosen = sorted(np.argsort(-(score + bias), kind="stable")[: n["top"]])
        z = r16(rms(r16(pre @ x), 1e-5) * r16(1 + pre_norm))
        y = np.zeros(n["latent"])
        for e in chosen:
            g = w_gate[e] @ z
            each = w_down[e] @ r16(g * sigmoid(g) * (w_up[e] @ z))
            t = r16(r16(r16(each) * r16(1 + each_norm)))
            y = y + score[e] / (score[chosen].sum() + 1e-15) * rms(t, 1e-8)
        t = r16(r16(post @ r16(y)) * r16(1 + end_norm))
        return self.residual(s, r16(rms(t, 1e-8)), gate)
