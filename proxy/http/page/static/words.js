// The words for decisions and numbers on this page.

const ACTIONS = {
  hold: { label: "Held", would: "Would have held" },
  redact: { label: "Redacted", would: "Would have redacted" },
  rewrite: { label: "Rewritten", would: "Would have rewritten" },
  suppress: { label: "Withheld", would: "Would have withheld" },
  terminate: { label: "Ended", would: "Would have ended the answer" },
  rewind: { label: "Rewound", would: "Would have rewound" },
  suspect: { label: "Found suspect", would: "Would have found suspect" },
  ask: { label: "Asked a person", would: "Would have asked a person" },
  approve: { label: "Approved", would: "Approved" },  // a person decides it
  deny: { label: "Refused by a person", would: "Refused by a person" },
  error: { label: "Guard failed", would: "Failed in shadow mode" },
  judged: { label: "Judged", would: "Would have judged" },
  refuse: { label: "Refused", would: "Would have refused" },
  restore: { label: "Brought back", would: "Would have brought back" },
  taint: { label: "Prompt marked", would: "Would have marked the prompt" },
  rewrite_prompt: { label: "Prompt rewritten", would: "Would have rewritten the prompt" },
  limit: { label: "Over a limit", would: "Over a limit" },  // no guard decides it
};

export const ACTION_NAMES = Object.keys(ACTIONS);
// Those of the verdicts on text that are not just let through.
export const VERDICTS = ACTION_NAMES.filter((action) => !["judged", "refuse", "rewrite_prompt", "taint", "limit", "approve", "deny"].includes(action));

// The reason of guards for the end of a text that was cut, where more of it could have become a match: nothing was
// found there.
const AT_CUT = "at_cut";
const CUT = { label: "Withheld at the cut", would: "Would have withheld at the cut" };

export function isAtCut({ reason }) { return reason === AT_CUT; }

export function actionLabel({ action, mode, reason }) {
  const words = isAtCut({ reason }) ? CUT : ACTIONS[action] ?? { label: action, would: action };
  return mode === "shadow" ? words.would : words.label;
}

// A hook's name without the module or the file that it comes from.
export function shortName(hook) {
  return hook.split(/[:/]/).at(-1).split(".").at(-1) || hook;
}

// One sentence: what happened, by which hook, and why.
export function sentence(decision) {
  const reason = decision.reason && !isAtCut(decision) ? `: ${decision.reason}` : "";
  return `${actionLabel(decision)} by ${shortName(decision.hook)}${reason}`;
}

// How much of a stream its guard's model judged.
export function judged({ num_judged: num, max_unjudged: most, num_unjudged: rest }) {
  if (num === undefined) return null;
  const parts = [`${plural(num, "token")} judged`, most ? `up to ${number(most)} out unjudged` : null, rest ? `${number(rest)} not judged` : null];
  return parts.filter(Boolean).join(", ");
}

export function seconds(value) {
  if (value === null || value === undefined) return "–";
  if (value < 0.0005) return "0 ms";
  if (value < 1) return `${number(value * 1000, value < 0.01 ? 1 : 0)} ms`;
  if (value < 120) return `${number(value, value < 10 ? 2 : 1)} s`;
  if (value < 7200) return `${number(value / 60, 0)} min`;
  return value < 172800 ? `${number(value / 3600, 0)} h` : `${number(value / 86400, 0)} days`;
}

export function number(value, digits = 0) {
  return value.toLocaleString("en-US", { minimumFractionDigits: 0, maximumFractionDigits: digits });
}

export function plural(value, one, many = `${one}s`) {
  return `${number(value)} ${value === 1 ? one : many}`;
}

export function percent(share) {
  const value = 100 * share;
  return `${number(value, value > 0 && value < 10 ? 1 : 0)} %`;
}

export function clock(time) {
  const date = new Date(time);
  return date.toLocaleTimeString("en-GB");
}

export function day(time) {
  return new Date(time).toLocaleDateString("en-GB", { day: "numeric", month: "short" });
}
