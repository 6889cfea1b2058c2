// The visitor's keys, kept for this tab alone, and the theme.

const KEYS = ["client", "admin"];
const listeners = new Set();

export const keys = {
  get client() { return sessionStorage.getItem("weir.key.client") ?? ""; },
  get admin() { return sessionStorage.getItem("weir.key.admin") ?? ""; },

  set(values) {
    for (const name of KEYS) {
      const value = (values[name] ?? "").trim();
      if (value) sessionStorage.setItem(`weir.key.${name}`, value);
      else sessionStorage.removeItem(`weir.key.${name}`);
    }
    for (const listener of listeners) listener();
  },

  onChange(listener) { listeners.add(listener); },

  // The client's key of the second answer, if it is another one.
  get second() { return sessionStorage.getItem("weir.key.second") ?? ""; },

  set second(value) {
    if (value) sessionStorage.setItem("weir.key.second", value);
    else sessionStorage.removeItem("weir.key.second");
  },
};

const THEMES = ["auto", "light", "dark"];

export function theme() {
  const stored = localStorage.getItem("weir.theme");
  return THEMES.includes(stored) ? stored : "auto";
}

export function nextTheme() {
  const next = THEMES[(THEMES.indexOf(theme()) + 1) % THEMES.length];
  localStorage.setItem("weir.theme", next);
  applyTheme();
  return next;
}

export function applyTheme() {
  const chosen = theme();
  if (chosen === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = chosen;
}
