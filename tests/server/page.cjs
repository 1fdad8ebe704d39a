// Uses the page at URL (argv 2) as people do; prints what it saw as JSON. Pictures go to argv 3 if it is given.
const { chromium } = require("playwright-core");
const { mkdtempSync, rmSync } = require("fs");
const { tmpdir } = require("os");
const { join } = require("path");

const flags = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
  "--disable-component-update", "--disable-sync"];

(async () => {
  const [url, pictures] = process.argv.slice(2);
  const profile = mkdtempSync(join(tmpdir(), "page-"));
  const context = await chromium.launchPersistentContext(profile, {
    executablePath: process.env.CHROMIUM || "/usr/bin/chromium", headless: true, args: flags,
    viewport: { width: 1000, height: 760 },
  });
  const page = context.pages()[0] ?? await context.newPage();
  page.setDefaultTimeout(20000);
  const seen = { errors: [] };
  page.on("pageerror", error => seen.errors.push(error.message));
  const bodies = [];
  page.on("request", request => { if (request.method() === "POST") bodies.push(request.postDataJSON()); });
  const sent = () => bodies.at(-1).messages.map(message => message.role + (message.role === "user" ? " " + message.content : ""));
  const picture = name => pictures ? page.screenshot({ path: join(pictures, name + ".png") }) : null;
  const text = selector => page.locator(selector).last().innerText();
  const done = () => page.waitForSelector(".turn.busy", { state: "detached" });
  const say = async message => { await page.fill("#input", message); await page.keyboard.press("Enter"); };

  await page.goto(url);
  await page.waitForSelector('#status[data-status="ready"]');
  if (await page.locator("#settings").isVisible()) {
    seen.asked_for_key = true;
    await page.fill("#key", "secret");
  }
  await page.waitForFunction(() => document.getElementById("model").textContent !== "mks");
  seen.title = await page.title();
  seen.rows = await text("#rows");
  seen.send_disabled = await page.locator("#send").isDisabled();
  if (!await page.locator("#settings").isVisible()) await page.click("#open");
  await page.fill("#limit", "80");
  await page.click("#open");

  // Both colour schemes, and enough contrast in each.
  for (const colorScheme of ["light", "dark"]) {
    await page.emulateMedia({ colorScheme });
    seen[colorScheme] = await page.evaluate(() => {
      const style = getComputedStyle(document.body);
      return [style.backgroundColor, style.color];
    });
    await picture("empty-" + colorScheme);
  }

  // Send, and see the answer come in pieces.
  await page.evaluate(() => {
    window.lengths = new Set();
    new MutationObserver(() => {
      const place = document.querySelector(".turn.assistant .text");
      if (place) window.lengths.add(place.textContent.length);
    }).observe(document.getElementById("talk"), { childList: true, subtree: true, characterData: true });
  });
  await say("<img src=x onerror=alert(1)> Hello");
  await page.waitForSelector(".turn.assistant");
  await done();
  seen.user = await text(".turn.user");
  seen.images = await page.locator("#talk img").count();
  seen.answer = await page.locator(".turn.assistant .text").last().textContent();
  seen.pieces = await page.evaluate(() => window.lengths.size);
  seen.meta = await text(".turn.assistant .meta");
  seen.speed = await text("#speed");
  seen.first = await text("#first");

  // Stop.
  await page.click("#open");
  await page.fill("#limit", "400");
  await page.click("#open");
  await say("slowly");
  await page.waitForFunction(() => document.querySelectorAll(".turn.assistant")[1]?.querySelector(".text").textContent.length > 3);
  await page.waitForFunction(() => document.getElementById("rows").textContent.startsWith("1"));
  seen.button_while_busy = await text("#send");
  await picture("busy-dark");
  await page.click("#send");
  await done();
  seen.stopped = await text(".turn.assistant .meta");
  seen.button_after = await text("#send");
  await page.waitForFunction(() => document.getElementById("rows").textContent.startsWith("0"));

  // Stop before anything came: the message is left out, and the page says so.
  await page.evaluate(() => {
    document.getElementById("input").value = "at once";
    document.getElementById("form").requestSubmit();
    document.getElementById("form").requestSubmit();
  });
  await done();
  seen.left_out = await text(".turn.user .meta");

  // A refusal, shown with its reason; then the same again.
  await page.click("#open");
  await page.fill("#temperature", "7");
  await say("too hot");
  await page.waitForSelector(".problem");
  seen.refusal = await text(".problem span");
  await picture("refusal-dark");
  await page.emulateMedia({ colorScheme: "light" });
  await picture("refusal-light");
  await page.fill("#temperature", "0");
  await page.fill("#limit", "80");
  await page.click(".problem button");
  await done();
  seen.sent_after_stop = sent();
  seen.problems_after = await page.locator(".problem").count();
  seen.answers = await page.locator(".turn.assistant").count();

  // A failure in the middle of an answer.
  await say("boom");
  await page.waitForSelector(".problem");
  await done();
  seen.failure = await text(".problem span");

  await page.click("#fresh");
  seen.turns_after_new = await page.locator(".turn").count();

  // A new conversation in the middle of an answer has nothing of it.
  await page.fill("#limit", "400");
  await page.fill("#temperature", "");
  await say("old");
  await page.waitForFunction(() => document.querySelector(".turn.assistant .text")?.textContent.length > 3);
  seen.temperature = bodies.at(-1).temperature ?? null;
  await page.click("#fresh");
  await page.fill("#limit", "20");
  await say("new");
  await page.waitForSelector(".turn.assistant");
  await done();
  await say("newer");
  await page.waitForFunction(() => document.querySelectorAll(".turn.assistant").length === 2);
  await done();
  seen.sent_in_new = sent();
  await page.click("#fresh");
  await page.setViewportSize({ width: 360, height: 700 });
  seen.overflow = await page.evaluate(() => document.documentElement.scrollWidth > document.documentElement.clientWidth);
  await picture("phone-light");
  console.log(JSON.stringify(seen));
  await context.close();
  rmSync(profile, { recursive: true, force: true });
})().catch(error => { console.error(error); process.exit(1); });
