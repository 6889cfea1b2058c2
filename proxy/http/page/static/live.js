// The dashboard: what the server does now, drawn each second.

import { Approvals } from "./approvals.js";
import { explain, follow, getJson } from "./api.js";
import { byId, h, replace } from "./dom.js";
import { Series } from "./series.js";
import { RunningRequests } from "./running.js";
import { VERDICTS, actionLabel, number, percent, plural, seconds } from "./words.js";

const WINDOW = 120;
const RETRY = 3000;
const WIDTH = 240;
const HEIGHT = 56;

export class Live {
  constructor({ openKeys }) {
    this.openKeys = openKeys;
    this.box = byId("live");
    this.note = byId("live-note");
    this.approvals = new Approvals();
    this.requests = new RunningRequests();
    this.isPaused = false;
    byId("live-pause").addEventListener("click", ({ currentTarget }) => {
      this.isPaused = !this.isPaused;
      currentTarget.textContent = this.isPaused ? "Go on" : "Pause";
    });
  }

  start() {
    if (this.abort) return;
    this.abort = new AbortController();
    this.series = new Series();
    this.#run(this.abort.signal);
  }

  stop() {
    this.abort?.abort();
    this.abort = null;
  }

  async #run(signal) {
    while (!signal.aborted) {
      try {
        for (const moment of (await getJson("admin/live/past", { signal })).data) this.series.add(moment, { isPast: true });
        for await (const snapshot of follow("admin/live", { signal })) {
          this.series.add(snapshot);
          if (this.isPaused) continue;
          this.#draw();
          this.approvals.load(signal);
          this.requests.load(signal);
        }
        throw new TypeError("the stream ended");
      } catch (error) {
        if (signal.aborted) return;
        this.#showError(error);
        if (error.status) return;  // it will not be allowed by waiting
        await new Promise((resolve) => setTimeout(resolve, RETRY));
        this.series = new Series();
      }
    }
  }

  #showError(error) {
    replace(this.note, operatorNote(error, this.openKeys));
    this.box.classList.add("stale");
    byId("live-pause").hidden = true;
    this.approvals.clear();
    this.requests.clear();
    if (error.status) replace(this.box);
  }

  #draw() {
    replace(this.note);
    this.box.classList.remove("stale");
    byId("live-pause").hidden = false;
    const { series } = this;
    keepingPlace(this.box, () => replace(this.box,
      h("div", { class: "tiles" }, tiles(series)),
      h("div", { class: "boards" },
        h("div", { class: "column" }, hooks(series), upstreams(series)),
        h("div", { class: "column" }, latency(series), engine(series)))));
  }
}

// Draws anew without moving who reads: tables keep their scroll position and the focus.
function keepingPlace(box, draw) {
  const before = [...box.querySelectorAll(".table-scroll")].map((one) => [one.scrollLeft, one === document.activeElement]);
  draw();
  box.querySelectorAll(".table-scroll").forEach((one, i) => {
    const [left, hadFocus] = before[i] ?? [0, false];
    one.scrollLeft = left;
    if (hadFocus) one.focus({ preventScroll: true });
  });
}

// A visitor who is not the operator reads this in the operator's views.
export function operatorNote(error, openKeys) {
  if (error.status === 401 || error.status === 403) {
    return h("div", { class: "notice" }, h("p", {}, h("strong", {}, "This view is the operator’s."), " It needs the admin key."),
      h("button", { type: "button", onclick: openKeys }, "Enter the admin key"));
  }
  if (error.status === 404) {
    return h("div", { class: "notice" }, h("p", {}, h("strong", {}, "This view is on the operator’s port."), " The server has a port of its own for its operator (--admin-port). This page is there, too."));
  }
  const { title, text } = explain(error);
  return h("div", { class: "notice error" }, h("p", {}, h("strong", {}, `${title}.`), ` ${text}`));
}

function tiles(series) {
  const running = series.gauge("weir_num_requests_running");
  const waiting = series.now("weir_num_requests_waiting");
  const tokens = series.rate("weir_generation_tokens_total");
  const requests = series.rate("weir_requests_total");
  const bad = series.growth("weir_requests_total", { outcome: "failed" });
  return [
    tile("Streams", number(running.at(-1)[1]), waiting ? `${number(waiting)} wait` : "none waits", running),
    tile("Tokens a second", number(mean(tokens, 5)), `${number(series.growth("weir_generation_tokens_total"))} in two minutes`, tokens),
    tile("Requests a second", number(mean(requests, 5), 1), bad ? `${plural(bad, "request")} failed` : "none failed", requests),
  ];
}

function tile(name, value, more, points) {
  return h("section", { class: "tile" }, h("h2", {}, name), h("p", { class: "figure" }, value), h("p", { class: "hint" }, more),
    points ? sparkline(points, `${name}, the last two minutes`) : null);
}

const TIMES = [
  ["First token", "weir_time_to_first_token_seconds"],
  ["Between tokens", "weir_inter_token_latency_seconds"],
  ["Whole answer", "weir_e2e_request_latency_seconds"],
];

function latency(series) {
  const since = TIMES.some(([, metric]) => series.isFresh(metric)) ? "in the last two minutes" : "since the server started";
  return board("Latency", `As clients see it, ${since}`, table(
    ["", "Median", "95 %", "99 %"],
    TIMES.map(([name, metric]) => [name, ...[0.5, 0.95, 0.99].map((share) => seconds(series.quantile(metric, share)))]),
    { caption: "Latency" }));
}

function sparkline(points, label) {
  const most = Math.max(1e-9, ...points.map(([, value]) => value));
  const at = ([ago, value]) => `${(WIDTH * (1 - ago / WINDOW)).toFixed(1)},${(HEIGHT - 3 - (HEIGHT - 8) * (value / most)).toFixed(1)}`;
  const line = points.map(at).join(" ");
  const start = points.length ? at(points[0]).split(",")[0] : "0";
  return h("svg", { class: "spark", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", role: "img", "aria-label": `${label}; at most ${number(most, 1)}` },
    h("polygon", { points: `${start},${HEIGHT} ${line} ${WIDTH},${HEIGHT}`, class: "area" }),
    h("polyline", { points: line, class: "line" }));
}

function hooks(series) {
  const rows = series.labels("weir_hook_verdicts_total", ["policy", "hook"]).map((which) => {
    const counts = VERDICTS.map((action) => series.now("weir_hook_verdicts_total", { ...which, action }));
    const emitted = series.now("weir_hook_verdicts_total", { ...which, action: "emit" });
    const calls = emitted + counts.reduce((a, b) => a + b, 0);
    const cost = calls ? series.now("weir_hook_seconds_total", which) / calls : null;
    const [held, unjudged] = ["weir_hook_held_seconds", "weir_hook_unjudged_tokens"].map((name) => series.quantileOfAll(name, 0.95, which));
    return { which, counts, emitted, cost, held, unjudged };
  });
  const shown = VERDICTS.map((action, i) => [action, i]).filter(([, i]) => rows.some(({ counts }) => counts[i]));
  const judges = rows.some(({ unjudged }) => unjudged !== null);
  return board("Guards", "Since the server started. How long text is held is counted while decisions are kept or watched", rows.length && table(
    ["Guard", "Let through", ...shown.map(([action]) => actionLabel({ action })), "Held for (95 %)", ...(judges ? ["Tokens out unjudged (95 %)"] : []), "Cost of a call"],
    rows.map(({ which, counts, emitted, held, unjudged, cost }) => [
      [which.hook, which.policy ? h("span", { class: "hint" }, ` ${which.policy}`) : null, isShadow(series, which) ? [" ", h("span", { class: "tag shadow" }, "shadow")] : null],
      number(emitted),
      ...shown.map(([action, i]) => (counts[i] ? h("span", { class: `count ${action}` }, number(counts[i])) : h("span", { class: "none" }, "0"))),
      seconds(held),
      ...(judges ? [unjudged === null ? "–" : number(unjudged)] : []),
      cost === null ? "–" : `${number(cost * 1e6)} µs`,
    ]), { caption: "Guards" }), "No guard has been called yet.");
}

// With one policy, the metrics do not name it.
function isShadow({ latest }, { policy, hook }) {
  return latest.shadow_hooks.some((one) => one.hook === hook && (policy === undefined || one.policy === policy));
}

function engine(series) {
  const blocks = series.now("weir_kv_blocks");
  const used = series.now("weir_kv_blocks_used");
  const facts = [
    ["Running", number(series.now("weir_num_requests_running"))],
    ["Waiting", number(series.now("weir_num_requests_waiting"))],
    ["Prompt tokens", number(series.now("weir_prompt_tokens_total"))],
    ["Generated tokens", number(series.now("weir_generation_tokens_total"))],
    ["Processes", number(series.latest.processes)],
  ];
  const share = blocks ? used / blocks : 0;
  return board("Engine", "Its load now, and its tokens since the start", h("div", {},
    blocks ? h("div", { class: "load" },
      h("span", { id: "cache-label" }, "Key-value cache"), h("span", {}, percent(share)),
      h("div", { class: "meter", role: "meter", "aria-labelledby": "cache-label", "aria-valuemin": 0, "aria-valuemax": 100, "aria-valuenow": Math.round(share * 100) },
        h("span", { style: { width: `${100 * share}%` } }))) : null,
    h("dl", { class: "numbers" }, facts.map(([name, value]) => [h("dt", {}, name), h("dd", {}, value)]))));
}

const STATES = { closed: "healthy", half_open: "tried again", open: "left out", draining: "draining" };

function upstreams(series) {
  const names = series.labels("weir_upstream_state", ["upstream"]).map(({ upstream }) => upstream);
  if (!names.length) return null;
  const statesOf = (upstream) => Object.keys(STATES).filter((state) => series.now("weir_upstream_state", { upstream, state }));
  const stateOf = (upstream) => {
    const states = statesOf(upstream);
    const hasFailed = series.now("weir_upstream_last_request_failed", { upstream }) > 0;
    const words = states.filter((state) => state !== "closed" || !hasFailed).map((state) => STATES[state]);
    if (hasFailed) words.push("last request failed");
    return h("span", { class: `state ${hasFailed || states.includes("open") ? "bad" : "good"}` }, words.join(", "));
  };
  return board("Upstreams", "Their state now, and requests since the start", table(
    ["Upstream", "State", "Running", "Finished", "Failed", "Went elsewhere"],
    names.map((upstream) => [
      upstream,
      stateOf(upstream),
      number(series.now("weir_upstream_outstanding", { upstream })),
      number(series.now("weir_upstream_requests_total", { upstream, outcome: "finished" })),
      number(series.now("weir_upstream_requests_total", { upstream, outcome: "failed" })),
      number(series.now("weir_upstream_retries_total", { upstream })),
    ])));
}

function board(title, text, content, empty = "") {
  return h("section", { class: "board" }, h("h2", {}, title), h("p", { class: "hint" }, text), content || h("p", { class: "empty" }, empty));
}

export function table(heads, rows, { caption } = {}) {
  return h("div", { class: "table-scroll", tabindex: "0", role: "region", "aria-label": caption ?? heads[0] },
    h("table", {},
      caption ? h("caption", { class: "visually-hidden" }, caption) : null,
      h("thead", {}, h("tr", {}, heads.map((head) => (head ? h("th", { scope: "col" }, head) : h("td"))))),
      h("tbody", {}, rows.map((cells) => h("tr", {}, cells.map((cell, i) => (i ? h("td", {}, cell) : h("th", { scope: "row", dir: "auto" }, cell))))))));
}

function mean(points, num) {
  const last = points.slice(-num);
  return last.length ? last.reduce((sum, [, value]) => sum + value, 0) / last.length : 0;
}
