// The smallest rectangle around points: one of its sides lies on a side of the convex hull.

/** @typedef {[number, number]} Point */
/** angle: of the side `width`, in radians. @typedef {{ center: Point, angle: number, width: number, height: number }} Rectangle */

/** Andrew's monotone chain. @param {Point[]} points @returns {Point[]} */
export function hull(points) {
  const sorted = points.sort(([a, b], [c, d]) => a - c || b - d);
  const half = (/** @type {Point[]} */ ordered) => {
    /** @type {Point[]} */
    const chain = [];
    for (const point of ordered) {
      while (chain.length > 1 && turn(chain[chain.length - 2], chain[chain.length - 1], point) <= 0) chain.pop();
      chain.push(point);
    }
    return chain.slice(0, -1);
  };
  return [...half(sorted), ...half(sorted.reverse())];
}

/** Above 0 if the way turns left. @param {Point} a @param {Point} b @param {Point} c */
const turn = (a, b, c) => (b[0] - a[0]) * (c[1] - a[1]) - (b[1] - a[1]) * (c[0] - a[0]);

/** @param {Point[]} corners of a convex polygon @returns {Rectangle} */
export function smallestRectangle(corners) {
  const boxes = corners.map((corner, i) => {
    const next = corners[(i + 1) % corners.length];
    return boxAt(corners, Math.atan2(next[1] - corner[1], next[0] - corner[0]));
  });
  return boxes.reduce((best, box) => (box.width * box.height < best.width * best.height ? box : best));
}

/** The rectangle with a side at this angle. @param {Point[]} points @param {number} angle @returns {Rectangle} */
function boxAt(points, angle) {
  const [cos, sin] = [Math.cos(angle), Math.sin(angle)];
  const [along, across] = [points.map(([x, y]) => x * cos + y * sin), points.map(([x, y]) => y * cos - x * sin)];
  const [left, right, top, bottom] = [Math.min(...along), Math.max(...along), Math.min(...across), Math.max(...across)];
  const [u, v] = [(left + right) / 2, (top + bottom) / 2];
  return { center: [u * cos - v * sin, u * sin + v * cos], angle, width: right - left, height: bottom - top };
}
