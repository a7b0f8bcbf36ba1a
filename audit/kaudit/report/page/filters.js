// Check boxes: none ticked means all.

function check(label, chosen, value) {
  const box = make("input", { type: "checkbox", checked: chosen.has(value) });
  box.addEventListener("change", () => {
    if (box.checked) chosen.add(value);
    else chosen.delete(value);
    refresh();
  });
  return make("label", { className: "check" }, box, ...label);
}

function verdictFilter() {
  const counts = VERDICTS.map((_, verdict) => COUNTED.reduce((count, row) => count + ((bits(row) >> verdict) & 1), 0));
  const boxes = VERDICTS.flatMap(({ name, meaning }, verdict) => {
    if (!counts[verdict]) return [];
    const box = check(
      [" ", symbol(verdict), ` ${name} `, make("span", { className: "many" }, number(counts[verdict]))],
      view.verdicts,
      verdict,
    );
    box.title = meaning;
    return [box];
  });
  document.getElementById("verdicts").append(...boxes);
}

function axisFilters() {
  const groups = [...AXES]
    .filter(([, axis]) => axis.values.length > 1)
    .map(([name, axis]) => {
      const chosen = view.axes.get(name) ?? new Set();
      view.axes.set(name, chosen);
      if (chosen.size) document.getElementById("filters").open = true;
      const values = make("fieldset", {}, make("legend", {}, name));
      const summary = make("summary");
      const say = () => {
        summary.textContent = [name, [...chosen].map(value => axis.values[value]).join(", ")]
          .filter(Boolean)
          .join(": ");
      };
      say();
      const group = make("details", {}, summary, values);
      // A long axis has many boxes: they are made when somebody looks.
      group.addEventListener("toggle", () => {
        if (values.childElementCount > 1) return;
        const used = [...new Set(axis.of)].sort((a, b) => a - b);
        values.append(...used.map(value => check([` ${axis.values[value]}`], chosen, value)));
      });
      values.addEventListener("change", say);
      return group;
    });
  document.getElementById("axes").replaceChildren(...groups);
}

function clearFilters() {
  view.verdicts.clear();
  view.axes.clear();
  view.search = document.getElementById("search").value = "";
  for (const box of document.querySelectorAll("#verdicts input")) box.checked = false;
  axisFilters();
  refresh();
}
