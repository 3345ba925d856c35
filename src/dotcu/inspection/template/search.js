// One search over all panes; hits are walked in the order source, PTX, SASS.
const search = { text: "", hits: [], index: -1 };
const painted = "highlights" in CSS ? new Highlight() : null;
if (painted) CSS.highlights.set("hit", painted);

function find(text) {
  search.text = text;
  search.hits = [];
  search.index = -1;
  const wanted = text.toLowerCase();
  for (const pane of each) {
    for (const index of pane.hits) pane.elements[index].classList.remove("hit", "here");
    pane.hits = [];
    if (wanted && !pane.element.hidden) {
      pane.rows.forEach((row, index) => { if (row.text.toLowerCase().includes(wanted)) pane.hits.push(index); });
    }
    for (const index of pane.hits) pane.elements[index].classList.add("hit");
    search.hits = search.hits.concat(pane.hits.map((index) => ({ pane, index })));
    pane.drawRuler();
  }
  paintHits(wanted);
  count();
}

// Of very many hits only the rows are coloured: a range for each would cost more than it shows.
function paintHits(wanted) {
  painted?.clear();
  if (!painted || search.hits.length > 3000) return;
  for (const { pane, index } of search.hits) {
    for (const range of ranges(pane.elements[index].querySelector("code"), wanted)) painted.add(range);
  }
}

function* ranges(element, wanted) {
  const nodes = [], starts = [];
  let text = "";
  const walker = document.createTreeWalker(element, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) nodes.push(walker.currentNode), starts.push(text.length), (text += walker.currentNode.data);
  text = text.toLowerCase();
  const locate = (offset) => {
    const node = starts.findLastIndex((start) => start <= offset);
    return [nodes[node], Math.min(offset - starts[node], nodes[node].length)];
  };
  for (let from = text.indexOf(wanted); from >= 0; from = text.indexOf(wanted, from + wanted.length)) {
    const range = new Range();
    range.setStart(...locate(from));
    range.setEnd(...locate(from + wanted.length));
    yield range;
  }
}

function nextHit(by) {
  if (!search.hits.length) return;
  const last = search.hits[search.index];
  last?.pane.elements[last.index].classList.remove("here");
  search.index = search.index < 0 && by < 0 ? search.hits.length - 1 : (search.index + by + search.hits.length) % search.hits.length;
  const { pane, index } = search.hits[search.index];
  choose(pane, index);
  pane.elements[index].classList.add("here");
  count();
}

function count() {
  const total = search.hits.length;
  at("hits").textContent = !search.text ? "" : search.index < 0 ? String(total) : `${search.index + 1} / ${total}`;
}
