"use strict";
// -- The robot in 3D -------------------------------------------------------------------------------------------

const matrix = {
  multiply(a, b) {
    const out = new Float32Array(16);
    for (let column = 0; column < 4; column++) for (let row = 0; row < 4; row++) {
      let sum = 0;
      for (let k = 0; k < 4; k++) sum += a[k * 4 + row] * b[column * 4 + k];
      out[column * 4 + row] = sum;
    }
    return out;
  },
  perspective(fovy, aspect, near, far) {
    const f = 1 / Math.tan(fovy / 2), depth = 1 / (near - far);
    return new Float32Array([f / aspect, 0, 0, 0, 0, f, 0, 0, 0, 0, (far + near) * depth, -1, 0, 0, 2 * far * near * depth, 0]);
  },
  look(eye, at) {
    const normal = (v) => { const n = Math.hypot(...v) || 1; return v.map((x) => x / n); };
    const cross = (a, b) => [a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]];
    const dot = (a, b) => a[0] * b[0] + a[1] * b[1] + a[2] * b[2];
    const z = normal([eye[0] - at[0], eye[1] - at[1], eye[2] - at[2]]), x = normal(cross([0, 0, 1], z)), y = cross(z, x);
    return new Float32Array([x[0], y[0], z[0], 0, x[1], y[1], z[1], 0, x[2], y[2], z[2], 0, -dot(x, eye), -dot(y, eye), -dot(z, eye), 1]);
  },
  place([x, y, z, w, i, j, k]) {
    return new Float32Array([1 - 2 * (j * j + k * k), 2 * (i * j + w * k), 2 * (i * k - w * j), 0, 2 * (i * j - w * k), 1 - 2 * (i * i + k * k), 2 * (j * k + w * i), 0, 2 * (i * k + w * j), 2 * (j * k - w * i), 1 - 2 * (i * i + j * j), 0, x, y, z, 1]);
  },
};

/** Triangles of a solid about its own origin: [[point, point, point], ...]; with their normals where it is round. */
function solid(geom, extent) {
  const [a, b, c] = geom.size, faces = [];
  const ring = (n, turn) => Array.from({ length: n }, (_, index) => turn((index / n) * 2 * Math.PI));
  const round = (radii, shiftOf, n = 16, m = 8) => {
    const at = (u, v) => {
      const normal = [Math.sin(v) * Math.cos(u), Math.sin(v) * Math.sin(u), Math.cos(v)];
      return { p: [normal[0] * radii[0], normal[1] * radii[1], normal[2] * radii[2] + shiftOf(normal[2])], n: normal };
    };
    for (let i = 0; i < n; i++) for (let j = 0; j < m; j++) {
      const u = [(i / n) * 2 * Math.PI, ((i + 1) / n) * 2 * Math.PI], v = [(j / m) * Math.PI, ((j + 1) / m) * Math.PI];
      const q = [at(u[0], v[0]), at(u[0], v[1]), at(u[1], v[1]), at(u[1], v[0])];
      faces.push([q[0], q[1], q[2]], [q[0], q[2], q[3]]);
    }
  };
  const flat = (...points) => {
    const [p, q, r] = points, u = q.map((x, k) => x - p[k]), v = r.map((x, k) => x - p[k]);
    const normal = [u[1] * v[2] - u[2] * v[1], u[2] * v[0] - u[0] * v[2], u[0] * v[1] - u[1] * v[0]];
    const length = Math.hypot(...normal) || 1;
    faces.push(points.map((point) => ({ p: point, n: normal.map((x) => x / length) })));
  };
  const quad = (p, q, r, s) => { flat(p, q, r); flat(p, r, s); };
  switch (geom.shape) {
    case "box": {
      const corner = (x, y, z) => [x * a, y * b, z * c];
      for (const s of [1, -1]) {
        quad(corner(s, -s, -1), corner(s, s, -1), corner(s, s, 1), corner(s, -s, 1));
        quad(corner(s, s, -1), corner(-s, s, -1), corner(-s, s, 1), corner(s, s, 1));
        quad(corner(-s, -1, s), corner(s, -1, s), corner(s, 1, s), corner(-s, 1, s));
      }
      break;
    }
    case "sphere": round([a, a, a], () => 0); break;
    case "ellipsoid": round([a, b, c], () => 0); break;
    case "capsule": round([a, a, a], (z) => Math.sign(z || 1e-9) * b, 16, 8); break;
    case "cylinder": {
      const top = ring(20, (u) => [a * Math.cos(u), a * Math.sin(u), b]), low = top.map(([x, y]) => [x, y, -b]);
      top.forEach((point, index) => {
        const next = (index + 1) % top.length, n = (p) => [p[0] / a, p[1] / a, 0];
        const q = [low[index], low[next], top[next], point].map((p) => ({ p, n: n(p) }));
        faces.push([q[0], q[1], q[2]], [q[0], q[2], q[3]]);
        flat([0, 0, b], point, top[next]);
        flat([0, 0, -b], low[next], low[index]);
      });
      break;
    }
    case "plane": {
      const x = a || 3 * extent, y = b || 3 * extent;
      quad([-x, -y, 0], [x, -y, 0], [x, y, 0], [-x, y, 0]);
      break;
    }
    case "mesh": {
      const point = (n) => geom.corners.slice(3 * n, 3 * n + 3);
      for (let k = 0; k < geom.faces.length; k += 3) flat(point(geom.faces[k]), point(geom.faces[k + 1]), point(geom.faces[k + 2]));
      break;
    }
  }
  return faces;
}

/** A drawing of a robot in a canvas; its note says why nothing is drawn. */
const drawing = (canvasId, noteId) => ({
  markers: [], // places (m) of the task's goal
  beside: null, // another drawing, which is seen from the same side
  inView: true, shown: null, // whether the canvas is in the window, and what it shows
  gl: null, program: null, bodies: [], center: [0, 0, 0], extent: 1, azimuth: -0.9, elevation: 0.45, distance: 1, aimed: false, last: null,
  open() {
    const canvas = $(canvasId);
    // Without a graphics processor the browser draws on the CPU, which a robot's server may need: smooth edges cost most.
    const get = (options) => { try { return canvas.getContext("webgl", { alpha: true, ...options }); } catch { return null; } };
    this.gl = get({ antialias: true, failIfMajorPerformanceCaveat: true }) || get({ antialias: false });
    const gl = this.gl;
    if (!gl) return this.say("no_webgl");
    const shader = (kind, source) => { const one = gl.createShader(kind); gl.shaderSource(one, source); gl.compileShader(one); return one; };
    const program = gl.createProgram();
    gl.attachShader(program, shader(gl.VERTEX_SHADER, `attribute vec3 point, normal; attribute vec4 colour; uniform mat4 view, body; uniform vec4 tint; varying vec4 shade;
      void main() { vec3 n = mat3(body[0].xyz, body[1].xyz, body[2].xyz) * normal; float light = 0.55 + 0.3 * abs(dot(n, vec3(0.43, -0.57, 0.70))) + 0.15 * n.z;
      shade = tint.a > 0.0 ? vec4(tint.rgb * light, tint.a) : vec4(colour.rgb * light, colour.a); gl_Position = view * body * vec4(point, 1.0); }`));
    gl.attachShader(program, shader(gl.FRAGMENT_SHADER, "precision mediump float; varying vec4 shade; void main() { gl_FragColor = vec4(shade.rgb * shade.a, shade.a); }"));
    gl.linkProgram(program);
    if (!gl.getProgramParameter(program, gl.LINK_STATUS)) { this.gl = null; return this.say("no_webgl"); }
    gl.useProgram(program);
    this.program = program;
    gl.enable(gl.DEPTH_TEST);
    gl.enable(gl.BLEND);
    gl.blendFunc(gl.ONE, gl.ONE_MINUS_SRC_ALPHA);
    canvas.addEventListener("webglcontextlost", () => { this.gl = null; this.say("no_webgl"); });
    new IntersectionObserver((entries) => {
      this.inView = entries[entries.length - 1].isIntersecting;
      this.shown = null;
      if (this.inView && this.last) this.draw(...this.last);
    }, { rootMargin: "200px" }).observe(canvas); // drawn before it is scrolled to
    let from = null;
    canvas.addEventListener("pointerdown", (event) => { from = [event.clientX, event.clientY]; canvas.setPointerCapture(event.pointerId); });
    canvas.addEventListener("pointerup", () => { from = null; });
    canvas.addEventListener("pointermove", (event) => {
      if (!from) return;
      this.turn((from[0] - event.clientX) * 0.01, (event.clientY - from[1]) * 0.01);
      from = [event.clientX, event.clientY];
    });
    canvas.addEventListener("wheel", (event) => { event.preventDefault(); this.zoom(event.deltaY > 0 ? 1.1 : 0.9); }, { passive: false });
    canvas.addEventListener("keydown", (event) => {
      const turns = { ArrowLeft: [-0.1, 0], ArrowRight: [0.1, 0], ArrowUp: [0, 0.1], ArrowDown: [0, -0.1] }[event.key];
      if (turns) this.turn(...turns); else if (event.key === "+") this.zoom(0.9); else if (event.key === "-") this.zoom(1.1); else return;
      event.preventDefault();
    });
    return undefined;
  },
  say(key) { put($(noteId), () => t(key)); $(canvasId).hidden = true; },
  turn(sideways, up) { this.azimuth += sideways; this.elevation = Math.min(1.5, Math.max(-0.3, this.elevation + up)); this.again(); },
  zoom(factor) { this.distance = Math.min(8 * this.extent, Math.max(0.3 * this.extent, this.distance * factor)); this.again(); },
  again() {
    if (this.last) this.draw(...this.last);
    const other = this.beside;
    if (!other) return;
    [other.azimuth, other.elevation, other.distance] = [this.azimuth, this.elevation, this.distance];
    if (other.last) other.draw(...other.last);
  },
  load(model) {
    const gl = this.gl;
    if (!gl) return;
    if (!model) return void this.say("no_scene");
    if ($(canvasId).hidden) { $(canvasId).hidden = false; put($(noteId), ""); } // of a robot without a model before
    for (const body of this.bodies) if (body) gl.deleteBuffer(body.buffer);
    this.bodies = [];
    if (!this.marker) {
      const list = solid({ shape: "sphere", size: [0.012, 0, 0] }, 1).flatMap((face) => face.flatMap(({ p, n }) => [...p, ...n, 0.1, 0.75, 0.25, 1]));
      this.marker = { buffer: gl.createBuffer(), count: list.length / 10 };
      gl.bindBuffer(gl.ARRAY_BUFFER, this.marker.buffer);
      gl.bufferData(gl.ARRAY_BUFFER, new Float32Array(list), gl.STATIC_DRAW);
    }
    [this.center, this.extent, this.shown] = [model.center, model.extent || 1, null];
    if (!this.aimed) { this.distance = 1.3 * this.extent; this.aimed = true; }
    const numbers = new Map();
    for (const geom of model.geoms) {
      const list = numbers.get(geom.body) || numbers.set(geom.body, []).get(geom.body);
      const m = matrix.place([...geom.pos, ...geom.quat]);
      const turn = (v, w) => [m[0] * v[0] + m[4] * v[1] + m[8] * v[2] + w * m[12], m[1] * v[0] + m[5] * v[1] + m[9] * v[2] + w * m[13], m[2] * v[0] + m[6] * v[1] + m[10] * v[2] + w * m[14]];
      for (const face of solid(geom, this.extent)) for (const { p, n } of face) list.push(...turn(p, 1), ...turn(n, 0), ...(geom.shape === "plane" ? [0.5, 0.5, 0.5, 0.15] : geom.rgba));
    }
    for (const [body, list] of numbers) {
      const buffer = gl.createBuffer();
      gl.bindBuffer(gl.ARRAY_BUFFER, buffer);
      gl.bufferData(gl.ARRAY_BUFFER, new Float32Array(list), gl.STATIC_DRAW);
      this.bodies[body] = { buffer, count: list.length / 10 };
    }
  },
  draw(pose, goal) {
    const gl = this.gl;
    if (!gl || !pose.length) return;
    this.last = [pose, goal];
    if (!this.inView) return;
    const canvas = $(canvasId), scale = Math.min(devicePixelRatio || 1, 2);
    const width = Math.round(canvas.clientWidth * scale), height = Math.round(canvas.clientHeight * scale);
    if (!width || !height) return;
    const numbers = [width, height, this.azimuth, this.elevation, this.distance, ...this.markers.flat(), ...pose, ...goal];
    // A robot at rest flickers by less than a pixel, which is not drawn again.
    if (this.shown && this.shown.length === numbers.length && numbers.every((value, k) => Math.abs(value - this.shown[k]) < 0.0005 * this.extent)) return;
    this.shown = numbers;
    if (canvas.width !== width || canvas.height !== height) { canvas.width = width; canvas.height = height; }
    gl.viewport(0, 0, width, height);
    gl.clearColor(0, 0, 0, 0);
    gl.clear(gl.COLOR_BUFFER_BIT | gl.DEPTH_BUFFER_BIT);
    const c = Math.cos(this.elevation), eye = [this.center[0] + this.distance * c * Math.cos(this.azimuth), this.center[1] + this.distance * c * Math.sin(this.azimuth), this.center[2] + this.distance * Math.sin(this.elevation)];
    const view = matrix.multiply(matrix.perspective(0.75, width / height, 0.01 * this.extent, 40 * this.extent), matrix.look(eye, this.center));
    gl.uniformMatrix4fv(gl.getUniformLocation(this.program, "view"), false, view);
    this.bodiesAt(pose, [0, 0, 0, 0], null);
    for (const place of this.markers) this.solidAt(this.marker, [...place, 1, 0, 0, 0]);
    const apart = goal.length === pose.length && goal.some((value, index) => Math.abs(value - pose[index]) > 0.004);
    if (apart) this.bodiesAt(goal, [1, 0.62, 0.1, 0.38], pose);
  },
  bodiesAt(pose, tint, except) {
    const gl = this.gl;
    gl.uniform4fv(gl.getUniformLocation(this.program, "tint"), tint);
    this.bodies.forEach((body, index) => {
      const place = pose.slice(7 * index, 7 * index + 7);
      if (!body || place.length < 7) return;
      if (except && place.every((value, k) => Math.abs(value - except[7 * index + k]) < 0.002)) return;
      this.solidAt(body, place);
    });
  },
  solidAt({ buffer, count }, place) {
    const gl = this.gl;
    gl.uniformMatrix4fv(gl.getUniformLocation(this.program, "body"), false, matrix.place(place));
    gl.bindBuffer(gl.ARRAY_BUFFER, buffer);
    for (const [name, size, offset] of [["point", 3, 0], ["normal", 3, 12], ["colour", 4, 24]]) {
      const at = gl.getAttribLocation(this.program, name);
      gl.enableVertexAttribArray(at);
      gl.vertexAttribPointer(at, size, gl.FLOAT, false, 40, offset);
    }
    gl.drawArrays(gl.TRIANGLES, 0, count);
  },
});
const scene = drawing("scene", "scene-note");

