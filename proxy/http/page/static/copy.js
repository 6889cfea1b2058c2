// Buttons that copy text, and files that the browser saves.

import { byId, h } from "./dom.js";

const SHOWN = 1500;

// `name`: what a screen reader says. `textOf` is asked when the button is pressed.
export function copyButton(name, textOf, label = name) {
  const button = h("button", { type: "button", class: "quiet copy", "aria-label": name, onclick: async () => {
    await copy(textOf());
    button.textContent = "Copied";
    byId("status").textContent = "Copied.";
    setTimeout(() => { button.textContent = label; }, SHOWN);
  } }, label);
  return button;
}

// A page without TLS, but for one of this machine, has no `navigator.clipboard`.
async function copy(text) {
  if (navigator.clipboard) return navigator.clipboard.writeText(text);
  const focused = document.activeElement;
  const box = h("textarea", { class: "visually-hidden", "aria-hidden": "true" });
  box.value = text;
  document.body.append(box);
  box.select();
  document.execCommand("copy");
  box.remove();
  focused?.focus();
}

export function saveFile(name, type, text) {
  const url = URL.createObjectURL(new Blob([text], { type }));
  h("a", { href: url, download: name }).click();
  URL.revokeObjectURL(url);
}
