// What is on the page follows from `view`; every control changes that and refreshes.

function refresh() {
  const rows = passing();
  const cells = number(new Set(rows.map(row => ROWS.cell[row])).size);
  const [allRows, allCells] = [number(COUNTED.length), number(DATA.cells[0].length)];
  document.getElementById("count").textContent =
    `${number(rows.length)} of ${allRows} rows, in ${cells} of ${allCells} cells`;
  const [down, across] = [AXES.get(view.down).of, AXES.get(view.across).of];
  if (view.field && !rows.some(row => down[row] === view.field[0] && across[row] === view.field[1])) view.field = null;
  heat(rows);
  list(rows);
  writeLink();
}

function chooseField(place) {
  view.field = place;
  refresh();
  const heading = document.getElementById("listed");
  heading.focus();
  heading.scrollIntoView({ block: "nearest" });
}

function leaveField(place) {
  view.field = null;
  refresh();
  map.querySelector(`[data-place="${place}"]`).focus();
}

function selectors() {
  for (const id of ["down", "across"]) {
    const select = document.getElementById(id);
    select.append(...[...AXES.keys()].map(name => new Option(name, name, false, name === view[id])));
    select.addEventListener("change", () => {
      view[id] = select.value;
      view.field = null;
      refresh();
    });
  }
  const colour = document.getElementById("colour");
  colour.append(
    new Option("verdict", ""),
    ...(TIMES ? [new Option(RATIO ? "time, after over before" : "time on the device", "time")] : []),
  );
  colour.value = view.byTime ? "time" : "";
  colour.addEventListener("change", () => {
    view.byTime = colour.value === "time";
    refresh();
  });
}

const map = document.getElementById("heat");
map.addEventListener("click", event => {
  const cell = event.target.closest("td.field");
  if (cell) chooseField(cell.dataset.place.split(",").map(Number));
});
map.addEventListener("keydown", event => {
  const cell = event.target.closest("td");
  if (!cell) return;
  if (event.key === "Enter" || event.key === " ") cell.click();
  else if (event.key === "Escape") leaveField(cell.dataset.place);
  else {
    const target = moved(event.key, cell);
    if (!target) return;
    cell.tabIndex = -1;
    target.tabIndex = 0;
    target.focus();
  }
  event.preventDefault();
});

document.getElementById("story").addEventListener("close", () => {
  view.open = null;
  writeLink();
});

const search = document.getElementById("search");
search.addEventListener("input", () => {
  view.search = search.value.trim();
  refresh();
});
document.getElementById("clear").addEventListener("click", clearFilters);

const START = startAxes();
const linked = new URLSearchParams(location.hash.slice(1));
[view.down, view.across] = START;
readLink(linked);
search.value = view.search;
verdictFilter();
axisFilters();
selectors();
refresh();
openLinked(linked);
// Somebody has put another address of this page into the bar.
addEventListener("hashchange", () => location.reload());
document.documentElement.dataset.ready = performance.now().toFixed(1);
