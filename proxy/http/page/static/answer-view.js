// An answer on the page: its text with the marks of the decisions in place, and a line about all of it.

import { copyButton } from "./copy.js";
import { h, replace } from "./dom.js";
import { StreamedText } from "./markdown.js";
import { showDecision } from "./popover.js";
import { actionLabel, isAtCut, judged, number, plural, seconds, sentence, shortName } from "./words.js";

const MAX_BAR = 14;
const STILL = 350;

export class AnswerView {
  // `name`: who answers. `actions`: what the buttons do.
  constructor(name, actions) {
    this.actions = actions;
    this.blocks = h("div", { class: "blocks" });
    this.notes = h("div", { class: "notes" });
    this.foot = h("footer", { class: "answer-foot" });
    this.element = h("article", { class: "turn answer", "aria-label": `Answer of ${name}`, "aria-busy": "true" },
      h("h2", { class: "who", dir: "auto" }, name || "model"), this.notes, this.blocks, this.foot);
    this.views = [];
    this.listeners = new Set();
    this.frame = null;
    this.waiting = h("p", { class: "waiting", "aria-hidden": "true" }, h("span"), h("span"), h("span"));
    this.blocks.append(this.waiting);
  }

  block(channel, title) {
    this.waiting.remove();
    if (channel === "content") this.#fold();
    const view = new BlockView(channel, title, () => this.#schedule());
    this.views.push(view);
    if (channel === "reasoning") this.blocks.prepend(view.element);
    else this.blocks.append(view.element);
    return view;
  }

  promptDecision(decision) {
    this.notes.append(h("button", { type: "button", class: `note ${kind(decision)}`, onclick: (event) => showDecision(decision, event.currentTarget) },
      sentence(decision)));
  }

  #fold() {
    for (const view of this.views) view.fold();
  }

  record(record) {
    for (const listener of this.listeners) listener(record);
  }

  notice({ title, text, needsKey }, { isError = true } = {}) {
    this.waiting.remove();
    this.blocks.append(h("div", { class: isError ? "notice error" : "notice" },
      h("p", {}, h("strong", {}, title), text ? [" ", h("span", { dir: "auto" }, text)] : null),
      needsKey && h("button", { type: "button", onclick: this.actions.openKeys }, "Enter a key")));
  }

  finish(answer) {
    this.flush();
    this.#fold();
    this.waiting.remove();
    this.element.setAttribute("aria-busy", "false");
    const facts = [];
    const { usage } = answer;
    if (usage) facts.push(`${plural(usage.completion_tokens, "token")}`);
    if (answer.firstText !== null) facts.push(`first after ${seconds((answer.firstText - answer.started) / 1000)}`);
    facts.push(seconds(answer.seconds));
    if (usage && usage.completion_tokens > 1) facts.push(`${number(usage.completion_tokens / Math.max(answer.seconds, 0.001))} tokens/s`);
    const end = answer.isEndedByGuard ? "content_filter" : answer.finishReason;
    if (end && end !== "stop") facts.push(FINISH[end] ?? end);
    replace(this.foot,
      h("p", { class: "facts" }, facts.join(" · ")),
      h("div", { class: "actions" },
        answer.content ? copyButton("Copy the answer", () => answer.content, "Copy") : null,
        h("button", { type: "button", class: "quiet", onclick: this.actions.showRaw }, "Raw stream"),
        answer.hasAnswer ? h("button", { type: "button", class: "quiet", "aria-label": "Save a recording for weir replay", onclick: this.actions.saveRecording }, "Recording") : null,
        h("button", { type: "button", class: "quiet again", onclick: this.actions.again }, "Ask again")),
      decisionList(answer));
  }

  flush() {
    this.frame = null;
    for (const view of this.views) view.flush();
    this.actions.grew();
  }

  #schedule() {
    // A hidden tab gets no frames; a timer still writes the text there.
    this.frame ??= document.hidden ? setTimeout(() => this.flush(), 200) : requestAnimationFrame(() => this.flush());
  }
}

const FINISH = {
  length: "cut at the most tokens",
  content_filter: "ended by a guard: not in the history",
  tool_calls: "calls a tool",
};

class BlockView {
  constructor(channel, title, schedule) {
    this.schedule = schedule;
    this.channel = channel;
    this.title = title;
    const isReasoning = channel === "reasoning";
    const root = h("div", { class: "text", dir: "auto" });
    this.rich = new StreamedText(root, { level: isReasoning ? 3 : 2, isPlain: channel.startsWith("tool_call") });
    this.heading = h("h3", { class: "channel" }, headingOf(channel, title));
    const name = `block ${channel.split(" ")[0]}`;
    if (isReasoning) {
      const summary = h("summary", { onclick: () => { this.isOwnChoice = true; } }, this.heading);
      this.element = h("details", { class: name, open: true }, summary, root);
    } else this.element = h("section", { class: name }, channel === "content" ? null : this.heading, root);
    this.hasMarks = false;
    this.heldNow = null;
    this.heldView = null;
    this.pending = [];
  }

  retitle(title) {
    this.title = title;
    this.heading.textContent = headingOf(this.channel, title);
  }

  // Reasoning that is over makes room, unless a guard has acted in it, or the reader has decided.
  fold() {
    if (this.channel === "reasoning" && !this.hasMarks && !this.isOwnChoice) this.element.open = false;
  }

  text(text) {
    this.pending.push(text);
    this.schedule();
  }

  mark(decision, covers) {
    this.#take();
    const mark = markOf(decision, covers);
    this.hasMarks = true;
    this.rich.insert(mark);
    this.schedule();
    return mark;
  }

  cover(mark, text) {
    const covered = mark.querySelector(".covered");
    covered.append(text);
    mark.setAttribute("aria-label", `${covered.textContent} (${sentence(mark.decision)})`);
    this.schedule();
  }

  held(held) {
    this.heldNow = held;
    this.schedule();
  }

  // Show all that came. Most pieces bring events about held text, so all of them are drawn at once.
  flush() {
    this.#take();
    this.rich.draw();
    this.#showHeld();
  }

  #take() {
    const text = this.pending.join("");
    this.pending = [];
    if (!text) return;
    this.rich.append(text);
    this.heldView?.moved();
  }

  // Held text stands at the end.
  #showHeld() {
    if (!this.heldNow) {
      this.heldView?.element.remove();
      this.heldView = null;
      return;
    }
    this.heldView ??= new HeldView();
    this.heldView.show(this.heldNow);
    const { element } = this.heldView;
    if (this.rich.end.lastChild !== element) this.rich.end.append(element);
  }
}

// Text that is held now. Its words appear once it has stood still for a moment: a guard holds a few characters
// of almost every piece.
class HeldView {
  constructor() {
    this.bar = h("span", { class: "bar" });
    this.label = h("span", { class: "held-label" });
    this.element = h("span", { class: "held", "aria-hidden": "true" }, this.bar, this.label);
    this.moved();
  }

  show({ num, hooks }) {
    this.bar.style.setProperty("--held", Math.min(num, 40));
    this.label.textContent = `${plural(num, "character")} held by ${hooks.map(shortName).join(" and ")}`;
  }

  moved() {
    clearTimeout(this.timer);
    this.label.hidden = true;
    this.timer = setTimeout(() => { this.label.hidden = false; }, STILL);
  }
}

function headingOf(channel, title) {
  if (channel.startsWith("tool_call")) return title ? `Call of ${title}` : "Tool call";
  return channel === "reasoning" ? "Reasoning" : channel;
}

// The class that has the decision's colour.
export function kind({ action, mode, reason }) {
  if (mode === "shadow") return "shadow";
  return isAtCut({ reason }) ? "suppress" : action;
}

// A decision in the text: the text that replaced something, or a sign where text is missing.
function markOf(decision, covers) {
  const num = decision.num_withheld ?? 0;
  const mark = h("button", {
    type: "button",
    class: `mark ${kind(decision)}`,
    "aria-label": num && !covers ? `${sentence(decision)}, ${plural(num, "character")}` : sentence(decision),
    "aria-haspopup": "dialog",
    onclick: () => showDecision(decision, mark),
  });
  mark.decision = decision;
  if (covers) mark.append(h("span", { class: "covered", dir: "auto" }));
  else if (decision.mode === "shadow" || (decision.action === "hold" && !num)) mark.append(h("span", { class: "tick" }));
  else {
    if (num) mark.append(h("span", { class: "gap", style: { "--gap": Math.min(num, MAX_BAR) } }));
    mark.append(h("span", { class: "sign" }, signOf(decision)));
  }
  return mark;
}

function signOf(decision) {
  const label = actionLabel(decision);
  return decision.action === "redact" || decision.action === "rewrite" ? label.toLowerCase() : `${label.toLowerCase()} by ${shortName(decision.hook)}`;
}

function decisionList({ decisions, numShortHolds }) {
  if (!decisions.length) return numShortHolds ? h("p", { class: "short-holds" }, shortHolds(numShortHolds)) : null;
  const held = Math.max(...decisions.map((one) => one.held_seconds ?? 0));
  const summary = `${plural(decisions.length, "decision")}${held > 0.0005 ? `, text held for ${seconds(held)} at most` : ""}`;
  return h("details", { class: "decision-list" },
    h("summary", {}, summary),
    h("ol", {}, decisions.map((decision) => {
      const num = decision.num_withheld;
      return h("li", { class: kind(decision) },
        h("button", { type: "button", class: "quiet", onclick: (event) => showDecision(decision, event.currentTarget) }, actionLabel(decision)),
        h("span", { class: "by" }, `by ${shortName(decision.hook)}${decision.reason ? `: ${decision.reason}` : ""}`),
        h("span", { class: "amount" }, [num ? plural(num, "character") : null, judged(decision), decision.held_seconds ? `held ${seconds(decision.held_seconds)}` : null].filter(Boolean).join(", ")));
    })),
    numShortHolds ? h("p", { class: "short-holds" }, shortHolds(numShortHolds)) : null);
}

function shortHolds(num) {
  return `Guards held text for a moment ${num === 1 ? "once" : `${number(num)} times`}, and let it through.`;
}
