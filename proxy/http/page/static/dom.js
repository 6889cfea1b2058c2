// Makes elements. Text becomes text nodes only, so nothing that a model or a server says is read as HTML.

export function h(tag, properties = {}, ...children) {
  const element = tag === "svg" || SVG_TAGS.has(tag)
    ? document.createElementNS("http://www.w3.org/2000/svg", tag)
    : document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) set(element, name, value);
  element.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

export function byId(id) {
  return document.getElementById(id);
}

export function replace(element, ...children) {
  element.replaceChildren(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
}

const SVG_TAGS = new Set(["path", "line", "rect", "g", "polyline", "polygon", "circle"]);

function set(element, name, value) {
  if (value === null || value === undefined || value === false) return;
  if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
  else if (name === "style") for (const [key, one] of Object.entries(value)) element.style.setProperty(key, one);
  else if (name === "dataset") Object.assign(element.dataset, value);
  else if (name === "class") element.setAttribute("class", value);
  else if (value === true) element.setAttribute(name, "");
  else element.setAttribute(name, String(value));
}
