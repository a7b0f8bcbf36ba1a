// The kernels of an outcome: the evidence.

function kernelTable(kernels) {
  const columns = ["kernel", "family, role", "launches", "grid", "block", "registers", "shared bytes"];
  const rows = kernels.map(kernel => [
    kernelName(...kernel.names),
    kernel.family === "unclassified" ? "UNCLASSIFIED" : kinds(kernel).join(", "),
    `${kernel.count}${kernel.graph ? " in a graph" : ""}`,
    ...[kernel.grid?.join("×"), kernel.block?.join("×"), kernel.registers, kernel.shared].map(value =>
      String(value ?? "–"),
    ),
  ]);
  const head = make("thead", {}, make("tr", {}, ...columns.map(name => make("th", { scope: "col" }, name))));
  const body = make("tbody", {}, ...rows.map(row => make("tr", {}, ...row.map(cell => make("td", {}, cell)))));
  return make(
    "div",
    { className: "wide", tabIndex: 0, role: "region", ariaLabel: "Kernels" },
    make("table", {}, make("caption", {}, "Kernels, in order of first launch"), head, body),
  );
}

const kinds = ({ family, role, arch }) => [...new Set([family, role, arch])].filter(Boolean);

const kernelName = (short, raw) =>
  short === raw
    ? make("code", {}, ...breakable(raw))
    : make("details", {}, make("summary", {}, make("code", {}, short)), make("code", {}, raw));
