// The story of one cell: for each op what ran, what did not and why, and the kernels that are the evidence.

function story(row) {
  const cell = ROWS.cell[row];
  const rows = [...ROWS.cell.keys()].filter(other => ROWS.cell[other] === cell);
  rows.sort((a, b) => ROWS.op[a] - ROWS.op[b]);
  const dialog = document.getElementById("story");
  const close = make("button", { type: "button", id: "close" }, "Close");
  close.addEventListener("click", () => dialog.close());
  const title = make("header", {}, make("h2", { id: "cell" }, ...breakable(cellId(cell))), close);
  dialog.replaceChildren(title, ...rows.map(one => opStory(one, one === row)));
  dialog.showModal();
  view.open = row;
  writeLink();
  dialog.scrollTop = 0;
}

function opStory(row, open) {
  const op = DATA.ops[ROWS.op[row]];
  const counted = ROWS.told[row] !== SPOKEN_FOR;
  const name = op === "*" ? "the whole cell" : op;
  const summary = make(
    "summary",
    {},
    ...(counted ? [symbol(worst(row)), ` ${name}: ${VERDICTS[worst(row)].name}`] : [name]),
  );
  const told = counted ? DATA.tellings[ROWS.told[row]] : [];
  const sentences = make(
    "ul",
    { className: "tellings" },
    ...told.map(([verdict, sentence]) =>
      make("li", {}, symbol(verdict), make("b", {}, ` ${VERDICTS[verdict].name}: `), sentence),
    ),
  );
  const outcomes = ROWS.outcomes.map(side => side[row]);
  const same = outcomes.every(outcome => outcome === outcomes[0]);
  // A change of a whole cell whose rows are those of its ops has none of its own.
  const shown = same ? outcomes.slice(0, outcomes[0] < 0 ? 0 : 1) : outcomes;
  const sides = shown.map((outcome, side) => {
    const title = outcomes.length === 1 ? [] : [make("h3", {}, same ? "Before and after, the same" : DATA.sides[side])];
    return make(
      "section",
      {},
      ...title,
      ...outcomeStory(
        outcome,
        DATA.paths[same ? DATA.paths.length - 1 : side][op] ?? [],
        same ? times(row) : timeOf(row, side),
      ),
    );
  });
  return make(
    "details",
    { open },
    summary,
    ...(told.length ? [sentences] : []),
    make("div", { className: "sides" }, ...sides),
  );
}

const timeOf = (row, side) => (ROWS.times[side]?.[row] == null ? "not timed" : micros(ROWS.times[side][row]));
const times = row => DATA.sides.map((_, side) => timeOf(row, side)).join(" → ");

function outcomeStory(number, paths, time) {
  if (number < 0) return [make("p", {}, "No row of this op.")];
  const outcome = { ...headOf(number), ...evidenceOf(number) };
  if (outcome.stopped) return [make("p", {}, `It ${outcome.stopped}.`)];
  const listed = [
    make("h4", {}, "Paths, fastest first"),
    make("ol", { className: "paths" }, ...candidates(outcome, paths)),
  ];
  if (outcome.predicted) return [...listed, make("p", {}, "Predicted, not observed: nothing ran, no kernel was seen.")];
  const belied = outcome.claimed !== null && outcome.claimed !== outcome.path;
  const facts = {
    "the engine claims": (outcome.claimed ?? "nothing") + (belied ? ", and the kernels show another" : ""),
    launches: String(outcome.launches),
    "CUDA graph":
      outcome.graphGot + (outcome.graphGot === outcome.graphAsked ? "" : `, asked for ${outcome.graphAsked}`),
    result: outcome.numerics,
    ...(TIMES ? { "time on the device": time } : {}),
  };
  return [
    ...listed,
    make("dl", {}, ...Object.entries(facts).flatMap(([name, fact]) => [make("dt", {}, name), make("dd", {}, fact)])),
    kernelTable(outcome.kernels),
  ];
}

/** Each path of the engine's list with its fate and the reasons against it; then those outside the list. */
function candidates(outcome, paths) {
  const reached = paths.includes(outcome.path) ? paths.indexOf(outcome.path) : paths.length;
  const unlisted = [...new Set([outcome.path, ...outcome.rejections.map(([path]) => path)])].filter(
    path => path !== null && !paths.includes(path),
  );
  const items = [...paths, ...unlisted].map((path, place) => {
    const against = outcome.rejections.filter(([of]) => of === path);
    const faster = place < reached && place < paths.length;
    const chosen = path === outcome.path && (outcome.predicted ? "predicted" : "ran");
    const fate = fateOf(chosen, against.length > 0, faster);
    const outside = place < paths.length ? "" : ", not in the engine's list";
    const reasons = against.flatMap(([, source, texts]) =>
      texts.map(text => make("li", {}, make("span", { className: "source" }, source), ` ${text}`)),
    );
    return make(
      "li",
      { className: path === outcome.path ? "ran" : "" },
      make("span", { className: "fate", ariaHidden: "true" }, fate[0]),
      ` ${path}: ${fate[1]}${outside}`,
      ...(reasons.length ? [make("ul", {}, ...reasons)] : []),
    );
  });
  if (outcome.path === null) items.push(make("li", { className: "ran" }, "→ ran kernels of no listed path"));
  return items;
}

/** A symbol and words for it. */
function fateOf(chosen, turnedDown, faster) {
  if (chosen) return ["→", chosen];
  if (turnedDown) return ["×", "turned down"];
  return faster ? ["?", "no reason is known"] : ["·", "not reached"];
}
