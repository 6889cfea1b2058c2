// The details of one decision, beside the mark that was pressed.

import { seesDecisions } from "./api.js";
import { byId, h, replace } from "./dom.js";
import { actionLabel, judged, plural, seconds } from "./words.js";

const MARGIN = 12;
let opener = null;

export function showDecision(decision, button) {
  const box = byId("details");
  opener = button;
  replace(box,
    h("div", { class: "head" },
      h("h2", { id: "details-title" }, actionLabel(decision)),
      h("button", { type: "button", class: "quiet icon", "aria-label": "Close", onclick: () => box.hidePopover() }, "×")),
    facts(decision),
    linkTo(decision));
  box.showPopover();
  place(box, button);
  box.querySelector("button").focus();
}

export function initPopover() {
  const box = byId("details");
  box.addEventListener("toggle", ({ newState }) => {
    if (newState === "closed" && opener) {
      if (box.contains(document.activeElement) || document.activeElement === document.body) opener.focus();
      opener = null;
    }
  });
  document.addEventListener("scroll", () => box.matches(":popover-open") && box.hidePopover(), { capture: true, passive: true });
}

export function facts(decision) {
  const rows = [
    ["Guard", decision.hook],
    ["Reason", decision.reason],
    ["Mode", decision.mode === "shadow" ? "shadow: it had no effect" : null],
    ["Where", place_of(decision)],
    ["Characters", decision.num_withheld ? `${plural(decision.num_withheld, "character")}${decision.mode === "shadow" ? "" : " withheld"}` : null],
    ["Tokens", judged(decision)],
    ["Held for", decision.held_seconds ? seconds(decision.held_seconds) : null],
    ["Policy", decision.policy],
    ["Key", decision.key],
    ["Tenant", decision.tenant === "default" ? null : decision.tenant],
  ];
  const list = h("dl", {}, rows.filter(([, value]) => value).map(([name, value]) => [h("dt", {}, name), h("dd", {}, value)]));
  if (!decision.withheld) return list;
  return h("div", {}, list,
    h("p", { class: "label" }, "Withheld text, kept by the server’s setting"),
    h("pre", { class: "withheld", dir: "auto", tabindex: "0" }, decision.withheld));
}

// To the decision among those that the server keeps, or from there to all of its request.
function linkTo({ request_id: request, hook, action }) {
  if (!request || !seesDecisions()) return null;
  const isThere = location.hash.startsWith("#decisions");
  const query = new URLSearchParams({ request_id: request, ...(isThere ? {} : { hook, action }), last: "all" });
  return h("p", { class: "to" }, h("a", { href: `#decisions?${query}`, onclick: () => byId("details").hidePopover() },
    isThere ? "All decisions of this request" : "This decision in Decisions"));
}

function place_of({ action, channel, offset, tool_name: tool }) {
  if (action === "limit") return null;  // the request was refused before anything of it was read
  if (channel === "prompt") return "the prompt";
  const where = channel === "content" ? "the answer" : channel === "tool_call" ? `the call of ${tool ?? "a tool"}` : `the ${channel}`;
  return `${where}, from character ${offset ?? 0}`;
}

function place(box, button) {
  const mark = button.getClientRects()[0] ?? button.getBoundingClientRect();
  const { width, height } = box.getBoundingClientRect();
  const left = Math.max(MARGIN, Math.min(mark.left, innerWidth - width - MARGIN));
  const below = mark.bottom + 8;
  const top = below + height + MARGIN < innerHeight ? below : Math.max(MARGIN, mark.top - height - 8);
  box.style.setProperty("left", `${left}px`);
  box.style.setProperty("top", `${top}px`);
}
