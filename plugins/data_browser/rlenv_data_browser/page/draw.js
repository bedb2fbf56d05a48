// Draw thumbnails and curves on canvases.

const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
let palette = {};
export function takeColours() {
  palette = { lines: [0, 1, 2, 3, 4, 5].map((n) => colour(`--c${n}`)), goal: colour("--goal"), soft: colour("--soft"), line: colour("--line"), ink: colour("--ink"), ok: colour("--ok"), bad: colour("--bad"), card: colour("--card") };
}

/** Return the context of a canvas of the size that it has on the page, in CSS pixels. */
export function context(canvas, height) {
  const scale = window.devicePixelRatio || 1, width = canvas.clientWidth, tall = height ?? canvas.clientHeight;
  if (canvas.width !== Math.round(width * scale) || canvas.height !== Math.round(tall * scale)) {
    canvas.width = Math.round(width * scale);
    canvas.height = Math.round(tall * scale);
  }
  const ctx = canvas.getContext("2d");
  ctx.setTransform(scale, 0, 0, scale, 0, 0);
  ctx.clearRect(0, 0, width, tall);
  return [ctx, width, tall];
}

/** Draw the thumbnails of all cameras at a share of the episode, 0 to 1, each in a cell of its own. */
export function drawPictures(canvas, tile, share) {
  const [ctx, width, height] = context(canvas);
  if (!tile?.sheet) return;
  const { strips, columns } = tile.head, wide = tile.sheet.width / columns;
  const across = strips.length < 2 ? 1 : strips.length < 5 ? 2 : 3, down = Math.ceil(strips.length / across);
  const cellW = width / across, cellH = height / down, column = Math.round(share * (columns - 1));
  let top = 0;
  strips.forEach(([name, tall, problem], at) => {
    const scale = Math.min((cellW - 2) / wide, (cellH - 2) / tall);
    const x = (at % across) * cellW + (cellW - wide * scale) / 2, y = Math.floor(at / across) * cellH + (cellH - tall * scale) / 2;
    if (problem) {
      ctx.fillStyle = palette.bad;
      ctx.font = "12px system-ui";
      ctx.textAlign = "center";
      ctx.fillText(`✕ ${name}`, (at % across) * cellW + cellW / 2, y + (tall * scale) / 2, cellW - 8);
    } else {
      ctx.drawImage(tile.sheet, column * wide, top, wide, tall, x, y, wide * scale, tall * scale);
    }
    top += tall;
  });
}

function polyline(ctx, values, x0, width, y, low, high) {
  const scale = high > low ? y.height / (high - low) : 0, step = values.length > 1 ? width / (values.length - 1) : 0;
  let down = false;
  ctx.beginPath();
  values.forEach((value, at) => {
    if (value === null) { down = false; return; }
    const place = [x0 + at * step, y.top + y.height - (scale ? (value - low) * scale : y.height / 2)];
    if (down) ctx.lineTo(...place); else ctx.moveTo(...place);
    down = true;
  });
  ctx.stroke();
}
/** Return the lowest and the highest value of some lists; a range that is not only noise of the last digit. */
function range(...lists) {
  let low = Infinity, high = -Infinity;
  for (const list of lists) for (const value of list ?? []) if (value !== null) { low = Math.min(low, value); high = Math.max(high, value); }
  const least = 1e-4 * Math.max(Math.abs(low), Math.abs(high), 1e-9);
  return high - low < least ? [low - least, high + least] : [low, high];
}

/** Draw all measurements of an episode in one small panel, each in its own range, and the reward below. */
export function drawCurves(canvas, head, share) {
  const [ctx, width, height] = context(canvas);
  if (!head) return;
  const reward = head.reward && head.reward.some((value) => value) ? head.reward : null, tall = reward ? height * 0.7 : height;
  ctx.lineWidth = 1;
  head.lines.forEach((line, at) => {
    const values = line.measured ?? line.goal;
    if (!values) return;
    ctx.strokeStyle = palette.lines[at % palette.lines.length];
    polyline(ctx, values, 3, width - 6, { top: 3, height: tall - 6 }, ...range(values));
  });
  if (reward) {
    ctx.strokeStyle = palette.ok;
    ctx.lineWidth = 1.5;
    polyline(ctx, reward, 3, width - 6, { top: tall, height: height - tall - 3 }, ...range(reward));
  }
  cursor(ctx, 3 + share * (width - 6), height);
}
function cursor(ctx, x, height, dash = []) {
  ctx.strokeStyle = palette.ink;
  ctx.lineWidth = 1;
  ctx.setLineDash(dash);
  ctx.beginPath();
  ctx.moveTo(x, 0);
  ctx.lineTo(x, height);
  ctx.stroke();
  ctx.setLineDash([]);
}

export const STRIP = 46, LEFT = 104, RIGHT = 8;
/** Draw a strip for each measurement with its goal, and one for the reward, with a cursor and the cuts. */
export function drawStrips(canvas, curves, share, cuts, words) {
  const strips = curves.lines.map((line) => ({ ...line, unit: curves.unit }));
  if (curves.reward) strips.push({ name: words.reward, measured: curves.reward, goal: null, unit: "" });
  const tall = Math.max(strips.length * STRIP, STRIP) + 4;
  canvas.style.height = `${tall}px`;
  const [ctx, width] = context(canvas, tall), inner = width - LEFT - RIGHT;
  strips.forEach((strip, at) => {
    const top = at * STRIP + 4, [low, high] = range(strip.measured, strip.goal), y = { top: top + 4, height: STRIP - 12 };
    ctx.fillStyle = palette.soft;
    ctx.font = "11px system-ui";
    ctx.textAlign = "right";
    ctx.fillText(strip.name, LEFT - 8, top + STRIP / 2 - 3, LEFT - 12);
    const value = at_share(strip.measured ?? strip.goal, share);
    ctx.fillStyle = palette.ink;
    ctx.fillText(value === null ? "–" : `${Number(value.toPrecision(4))}${strip.unit ? ` ${strip.unit}` : ""}`, LEFT - 8, top + STRIP / 2 + 11, LEFT - 12);
    ctx.strokeStyle = palette.line;
    ctx.lineWidth = 1;
    ctx.strokeRect(LEFT, top, inner, STRIP - 4);
    if (strip.goal) {
      ctx.strokeStyle = palette.goal;
      ctx.setLineDash([4, 3]);
      polyline(ctx, strip.goal, LEFT, inner, y, low, high);
      ctx.setLineDash([]);
    }
    if (strip.measured) {
      ctx.strokeStyle = palette.lines[0];
      ctx.lineWidth = 1.5;
      polyline(ctx, strip.measured, LEFT, inner, y, low, high);
    }
  });
  for (const cut of cuts) {
    ctx.fillStyle = palette.bad;
    const x = LEFT + (curves.frames > 1 ? cut / (curves.frames - 1) : 0) * inner;
    ctx.fillRect(x - 1, 0, 2, tall);
    ctx.textAlign = "center";
    ctx.fillText("✂", x, 10);
  }
  cursor(ctx, LEFT + share * inner, tall);
}
const at_share = (values, share) => (values && values.length ? values[Math.round(share * (values.length - 1))] : null);
