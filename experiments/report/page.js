"use strict";
// Adds to a report what paper cannot do: values on hover, zoom into figures, sorting of tables. Loads nothing.
const SVG = "http://www.w3.org/2000/svg";
const tip = document.body.appendChild(document.createElement("div"));
tip.id = "tip";

function showTip(text, event) {
  tip.textContent = text;
  tip.style.display = text ? "block" : "none";
  const right = Math.min(event.clientX + 14, window.innerWidth - tip.offsetWidth - 6);
  tip.style.left = Math.max(4, right) + "px";
  tip.style.top = Math.max(4, event.clientY - tip.offsetHeight - 12) + "px";
}

function niceTicks(low, high) {
  const rough = (high - low) / 6, power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((one) => one * power).find((one) => one >= 0.999 * rough);
  const ticks = [];
  for (let n = Math.ceil(low / step - 1e-9); n <= Math.floor(high / step + 1e-9); n++) ticks.push(+(n * step).toPrecision(12));
  return ticks;
}

const written = (value) => String(+value.toPrecision(6));

function make(parent, name, attributes, text) {
  const element = parent.appendChild(document.createElementNS(SVG, name));
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  if (text !== undefined) element.textContent = text;
  return element;
}

function chart(svg) {
  const d = Object.fromEntries(Object.entries(svg.dataset).map(([key, value]) => [key, Number(value)]));
  const whole = { x0: d.l, x1: d.l + d.w, y0: d.t, y1: d.t + d.h }; // in pixels of the figure as it was drawn
  let view = { ...whole }, drag = null, near = null;
  const marks = [...svg.querySelector(".marks").children].map((element) => ({ element, at: placeOf(element) }));
  const toX = (x) => d.l + ((x - view.x0) / (view.x1 - view.x0)) * d.w;
  const toY = (y) => d.t + ((y - view.y0) / (view.y1 - view.y0)) * d.h;
  const dataX = (x) => d.x0 + ((x - d.l) / d.w) * (d.x1 - d.x0);
  const dataY = (y) => d.y1 - ((y - d.t) / d.h) * (d.y1 - d.y0);
  const words = { x: [...svg.querySelectorAll(".xticks text")], y: [...svg.querySelectorAll(".yticks text")] };
  for (const side of ["x", "y"]) words[side] = words[side].map((t) => [Number(t.getAttribute(side)) - (side === "y" ? 4 : 0), t.textContent]);
  const button = svg.parentNode.insertBefore(document.createElement("button"), svg);
  button.type = "button"; button.className = "whole"; button.textContent = "show all"; button.hidden = true;
  button.addEventListener("click", () => look(whole));

  function placeOf(element) {
    const value = (name) => Number(element.getAttribute(name));
    if (element.tagName === "circle") return { x: value("cx"), y: value("cy") };
    if (element.tagName === "rect") return { x: value("x"), y: value("y"), x2: value("x") + value("width"), y2: value("y") + value("height") };
    if (element.tagName === "line") return { x: value("x1"), y: value("y1"), x2: value("x2"), y2: value("y2") };
    return { points: element.getAttribute("points").split(" ").map((pair) => pair.split(",").map(Number)) };
  }

  function ticks(side, isWords) {
    const group = svg.querySelector(side === "x" ? ".xticks" : ".yticks");
    group.replaceChildren();
    const ends = side === "x" ? [dataX(view.x0), dataX(view.x1)] : [dataY(view.y1), dataY(view.y0)];
    const back = side === "x" ? (v) => d.l + ((v - d.x0) / (d.x1 - d.x0)) * d.w : (v) => d.t + ((d.y1 - v) / (d.y1 - d.y0)) * d.h;
    const all = isWords ? words[side] : niceTicks(...ends).map((v) => [back(v), written(v)]);
    for (const [place, text] of all) {
      const p = side === "x" ? toX(place) : toY(place);
      if (side === "x" && p >= d.l - 1 && p <= d.l + d.w + 1) {
        make(group, "line", { class: "grid", x1: p, x2: p, y1: d.t, y2: d.t + d.h });
        make(group, "text", { x: p, y: d.t + d.h + 16, "text-anchor": "middle" }, text);
      } else if (side === "y" && p >= d.t - 1 && p <= d.t + d.h + 1) {
        make(group, "line", { class: "grid", x1: d.l, x2: d.l + d.w, y1: p, y2: p });
        make(group, "text", { x: d.l - 6, y: p + 4, "text-anchor": "end" }, text);
      }
    }
  }

  function look(next) {
    const w = Math.min(next.x1 - next.x0, d.w), h = d.ywords ? d.h : Math.min(next.y1 - next.y0, d.h);
    if (w < d.w * 1e-4 || h < d.h * 1e-4) return;
    const x0 = Math.min(Math.max(next.x0, whole.x0), whole.x1 - w), y0 = Math.min(Math.max(next.y0, whole.y0), whole.y1 - h);
    view = { x0, x1: x0 + w, y0, y1: y0 + h };
    for (const { element, at } of marks) {
      const set = (values) => { for (const [key, value] of Object.entries(values)) element.setAttribute(key, value); };
      if (at.points) set({ points: at.points.map(([x, y]) => toX(x) + "," + toY(y)).join(" ") });
      else if (element.tagName === "circle") set({ cx: toX(at.x), cy: toY(at.y) });
      else if (element.tagName === "rect") set({ x: toX(at.x), y: toY(at.y), width: toX(at.x2) - toX(at.x), height: toY(at.y2) - toY(at.y) });
      else set({ x1: toX(at.x), x2: toX(at.x2), y1: toY(at.y), y2: toY(at.y2) });
    }
    ticks("x", d.xwords);
    ticks("y", d.ywords);
    button.hidden = w > 0.999 * d.w && h > 0.999 * d.h;
    for (const name of svg.querySelectorAll(".name")) name.style.opacity = button.hidden ? 1 : 0.35; // levels are those of the whole
  }

  function zoom(factor, x, y) {
    const cx = view.x0 + ((x - d.l) / d.w) * (view.x1 - view.x0), cy = view.y0 + ((y - d.t) / d.h) * (view.y1 - view.y0);
    look({ x0: cx - (cx - view.x0) * factor, x1: cx + (view.x1 - cx) * factor, y0: cy - (cy - view.y0) * factor, y1: cy + (view.y1 - cy) * factor });
  }

  function at(event) {
    const box = svg.getBoundingClientRect(), scale = svg.viewBox.baseVal.width / box.width;
    return { x: (event.clientX - box.left) * scale, y: (event.clientY - box.top) * scale };
  }

  function nearest({ x, y }) {
    let best = null, least = 16;
    for (const { element } of marks) {
      if (element.dataset.t === undefined) continue;
      const p = placeOf(element);
      const inX = p.x2 === undefined ? Math.abs(x - p.x) : Math.max(p.x - x, x - p.x2, 0);
      const inY = p.x2 === undefined ? Math.abs(y - p.y) : Math.max(p.y - y, y - p.y2, 0);
      const away = Math.hypot(inX, inY);
      if (away <= least) [best, least] = [element, away];
    }
    return best;
  }

  function hover(event) {
    const found = nearest(at(event));
    if (near && near !== found) near.classList.remove("near");
    near = found;
    if (near) near.classList.add("near");
    showTip(near ? near.dataset.t : "", event);
  }

  svg.addEventListener("pointerdown", (event) => { if (event.button === 0) { drag = { from: at(event) }; hover(event); } });
  svg.addEventListener("pointermove", (event) => {
    if (!drag) return hover(event);
    const to = at(event), { from } = drag;
    drag.box = drag.box || make(svg, "rect", { class: "pick" });
    const tall = d.ywords || Math.abs(to.y - from.y) < 12; // a flat stroke takes the whole height
    const area = { x: Math.min(from.x, to.x), width: Math.abs(to.x - from.x), y: tall ? d.t : Math.min(from.y, to.y), height: tall ? d.h : Math.abs(to.y - from.y) };
    for (const [key, value] of Object.entries(area)) drag.box.setAttribute(key, value);
    drag.area = area;
  });
  const end = (taken) => {
    if (!drag) return;
    const { area, box } = drag;
    drag = null;
    if (box) box.remove();
    if (taken && area && area.width > 6) {
      const px = (x) => view.x0 + ((x - d.l) / d.w) * (view.x1 - view.x0), py = (y) => view.y0 + ((y - d.t) / d.h) * (view.y1 - view.y0);
      look({ x0: px(area.x), x1: px(area.x + area.width), y0: py(area.y), y1: py(area.y + area.height) });
    }
  };
  window.addEventListener("pointerup", () => end(true));
  svg.addEventListener("pointercancel", () => end(false));
  svg.addEventListener("pointerleave", (event) => { if (near) near.classList.remove("near"); near = null; showTip("", event); });
  svg.addEventListener("dblclick", () => look(whole));
  svg.addEventListener("wheel", (event) => {
    if (document.activeElement !== svg && !event.ctrlKey) return; // the page scrolls until a figure was clicked
    event.preventDefault();
    const { x, y } = at(event);
    zoom(event.deltaY > 0 ? 1.25 : 0.8, x, y);
  }, { passive: false });
  svg.addEventListener("keydown", (event) => {
    const factor = { "+": 0.8, "-": 1.25 }[event.key];
    if (factor) zoom(factor, d.l + d.w / 2, d.t + d.h / 2);
    if (event.key === "0" || event.key === "Escape") look(whole);
  });
}

function sortable(table) {
  const heads = [...table.tHead.rows[0].cells], body = table.tBodies[0];
  const value = (row, column) => { const cell = row.cells[column]; return cell.dataset.v === undefined ? cell.textContent : Number(cell.dataset.v); };
  const missing = (one) => one === "-" || one === "";
  heads.forEach((head, column) => head.firstChild.addEventListener("click", () => {
    const sign = head.getAttribute("aria-sort") === "ascending" ? -1 : 1;
    heads.forEach((other) => other.removeAttribute("aria-sort"));
    head.setAttribute("aria-sort", sign > 0 ? "ascending" : "descending");
    const rows = [...body.rows].map((row) => [value(row, column), row]);
    rows.sort(([one], [other]) => missing(one) - missing(other) || sign * (typeof one === "number" && typeof other === "number"
      ? one - other : String(one).localeCompare(String(other), "en", { numeric: true })));
    body.append(...rows.map(([, row]) => row));
  }));
}

document.querySelectorAll("svg.chart").forEach(chart);
document.querySelectorAll("table.sort").forEach(sortable);
