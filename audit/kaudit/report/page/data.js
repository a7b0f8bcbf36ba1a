"use strict";
// The tables as the page was given them, and what is derived from them once.

const DATA = JSON.parse(document.getElementById("data").textContent);
const ROWS = DATA.rows;
const VERDICTS = DATA.verdicts;
const WHOLE_CELL = 0; // the number of the op "*"
const SPOKEN_FOR = -1;

/** Rows that are counted: not those that the row of their whole cell speaks for. */
const COUNTED = [...ROWS.told.keys()].filter(row => ROWS.told[row] !== SPOKEN_FOR);

/** Each telling's verdicts as bits, and the worst of them; where nothing is told, the last verdict there is. */
const TELLINGS = DATA.tellings.map(told => {
  const verdicts = told.length ? told.map(([verdict]) => verdict) : [VERDICTS.length - 1];
  return { worst: verdicts[0], bits: verdicts.reduce((bits, verdict) => bits | (1 << verdict), 0) };
});
const worst = row => TELLINGS[ROWS.told[row]].worst;
const bits = row => TELLINGS[ROWS.told[row]].bits;

/** Axes by name: values in order, and for each row the number of its value. */
const AXES = new Map();
const used = new Set(ROWS.op);
if (used.size > 1) AXES.set("op", { values: DATA.ops.map(op => (op === "*" ? "whole cell" : op)), of: ROWS.op });
for (const { name, place, values, codes } of DATA.axes) {
  const tokens = DATA.cells[place];
  AXES.set(name, { values, place, of: Int32Array.from(ROWS.cell, cell => codes[tokens[cell]]) });
}
AXES.set("nothing", { values: ["all rows"], of: new Uint8Array(ROWS.cell.length) });

/** Microseconds of one table; of two, how many times as long the later one took. */
const RATIO = ROWS.times.length === 2;
const ratio = (was, now) => (was && now ? now / was : null);
const TIMES = RATIO ? ROWS.times[0].map((was, row) => ratio(was, ROWS.times[1][row])) : ROWS.times[0];

/** What the list shows of an outcome. */
function headOf(outcome) {
  const [stopped, path, claimed, graphAsked, graphGot, numerics] = DATA.frames[DATA.frame[outcome]];
  const predicted = !stopped && numerics === undefined;
  return { stopped, predicted, path, claimed, graphAsked, graphGot, numerics, launches: DATA.launches[outcome] };
}

let evidence = null;

/** Its kernels and rejections, put together again from their parts; these are read when the first story is opened. */
function evidenceOf(outcome) {
  evidence ??= JSON.parse(document.getElementById("evidence").textContent);
  const [kernels, rejections] = evidence.outcomes[outcome];
  return {
    kernels: kernels.map(kernel => {
      const [part, count, grid, graph] = evidence.kernels[kernel];
      const [name, family, role, arch, block, registers, shared] = evidence.functions[part];
      return { names: evidence.names[name], family, role, arch, block, registers, shared, count, grid, graph };
    }),
    rejections: rejections.map(rejection => evidence.rejections[rejection]),
  };
}

const cellId = cell => DATA.tokens.map((tokens, place) => tokens[DATA.cells[place][cell]]).join("/");
const number = count => count.toLocaleString("en");
const micros = time => (time >= 1000 ? `${(time / 1000).toPrecision(3)} ms` : `${time.toPrecision(3)} µs`);
const timeText = time => (time == null ? "" : RATIO ? `${time.toFixed(2)}×` : micros(time));

/** An element. All that comes from a table goes through here, as text. */
function make(tag, properties = {}, ...children) {
  const element = Object.assign(document.createElement(tag), properties);
  element.append(...children);
  return element;
}

/** A verdict's symbol for the eye; its name stands beside it, or in the label around it. */
function symbol(verdict) {
  const { symbol, tone } = VERDICTS[verdict];
  return make("span", { className: `symbol ${tone}`, ariaHidden: "true" }, symbol);
}
