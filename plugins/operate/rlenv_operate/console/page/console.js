"use strict";
// The operator's page. One socket to the console; every text that comes from it is shown as text, never as HTML.

// -- Words -----------------------------------------------------------------------------------------------------

const WORDS = {
  en: {
    stop: "STOP", stop_hint: "Stop the robot now. Key: Escape", theme: "Theme", login: "Log in", token: "Token", enter: "Enter",
    operate: "Operate", remark: "Reason or remark", take: "take the robot from its holder", arm: "Arm", hold: "Hold",
    reset_done: "Reset done", reset_refused: "Not ready", success: "Success", failure: "Failure", discard: "Discard",
    teleop: "Teleoperation", view: "Robot", cameras: "Cameras", joints: "Joints", sensors: "Sensors",
    timing: "Loop and server", episodes: "Episodes", acts: "Acts", name: "Name", range: "Range", unit: "Unit", age: "Age",
    value: "Value", goal: "Goal", load: "Load", number: "No.", began: "Began", seconds: "Seconds", ended: "Ended",
    who: "Who", act: "Act", outcome: "Outcome", time: "Time", role: "Role",
    pad_label: "Teleoperation. Focus here, hold the space bar, and press keys to move joints",
    pad_help: "Click here. Hold Space to engage; Q W E R T Y move joints 1 to 6 up, A S D F G H down; Shift is slow. Releasing Space, or leaving this page, holds the robot.",
    view_label: "3D view of the robot: solid as measured, transparent as commanded. Arrow keys turn, + and - zoom",
    no_webgl: "3D needs WebGL, which this browser does not offer. Everything else works.",
    no_scene: "There is no model of this robot here, so it can't be drawn.",
    no_cameras: "No cameras.", no_gamepad: "No gamepad. Press a button on one to use it.",
    gamepad: "Gamepad: hold a shoulder button to engage; sticks, D-pad and triggers move the joints.",
    touch_label: "Two thumb sticks. A finger on a stick engages; lifting it holds the robot", stick_left: "Left stick", stick_right: "Right stick",
    touch_group: "Next joints on the sticks", xr_start: "Follow my hand in space", xr_end: "End", xr_clutch: "Hold to move",
    xr_on: "Hold the grip button, or the button here: the gripper follows your hand. The trigger closes it. B or Y stops the robot.",
    xr_lost: "Where your hand is can't be seen now: the robot holds.", xr_failed: "The headset or phone refused",
    engaged: "ENGAGED", released: "released: the robot holds", not_armed: "not armed: Arm first", others: "moves the robot here",
    not_live: "NOT LIVE", no_console: "no connection to the console", old_state: "the robot's state is old", not_read: "the robot was not read yet",
    drive: "drive", verdict: "verdict", r_operate: "operate", r_move: "move", r_watch: "watch", r_stop: "stop", goal_of_task: "Goal of the task", not_recorded: "not recorded", dropped: "dropped",
    not_sent: "STOP WAS NOT SENT: no connection. Use the robot's own stop button!", sending: "Stop …",
    asks_reset: "The robot asks: is the scene ready?", asks_verdict: "How did the episode go?", and_verdict: "Give a verdict first, if you like.",
    chosen: "verdict", holder: "Client that moves it", nobody: "nobody", reading: "Newest reading", period: "Period", overruns: "Overruns",
    longest: "Longest period", periods: "Periods", late: "Late commands", real_time: "Real time", recording: "Controller's log",
    held_back: "Held back by the guard", faults: "Faults", mover: "This console", recorded: "recorded", bad_token: "This token is not admitted.",
    lost_rights: "This token has lost its rights.", need_reason: "The robot is stopped: write what was found, and why it may move again.",
    idle: "idle", arming: "arming", armed: "armed", moving: "moving", judging: "waits for a verdict",
    s_disarmed: "disarmed", s_arming: "arming", s_resetting: "resetting", s_ready: "ready", s_running: "running", s_holding: "holding",
    s_stopped: "STOPPED", old: "old", measured: "age of this pose:",
    replay: "Replay a recorded episode", first: "Episode", second: "Beside it", back: "One frame back", next: "One frame on", play: "Play", pause: "Pause",
    speed: "Speed", to_live: "Back to live", at: "Place in the episode", live: "Live", none: "nothing", simulation: "its simulation", is_replay: "REPLAY, not live",
    compare: "Compare recorded episodes", begin: "Begin", left: "Left is better", right: "Right is better", equal: "Equally good", skip: "Can't say",
    compare_label: "Two recorded episodes. Focus here: arrow left and right choose the better one, arrow up says equally good, arrow down skips",
    compare_help: "Which one is better? With the focus here: ← left, → right, ↑ equally good, ↓ can't say.", left_one: "Left", right_one: "Right",
    no_pair: "No pair is left for you to judge.", not_drawn: "The two can't be drawn here, so they can't be compared. A browser with WebGL can.", prefer: "Preference", user: "Environment", assistant: "Agent",
  },
  zh: {
    stop: "停止", stop_hint: "立即停止机器人。按键：Esc", theme: "主题", login: "登录", token: "令牌", enter: "进入",
    operate: "操作", remark: "原因或备注", take: "从当前持有者处接管机器人", arm: "使能", hold: "保持",
    reset_done: "场景已复位", reset_refused: "未就绪", success: "成功", failure: "失败", discard: "丢弃",
    teleop: "遥操作", view: "机器人", cameras: "相机", joints: "关节", sensors: "传感器",
    timing: "控制循环与服务器", episodes: "回合", acts: "操作记录", name: "名称", range: "范围", unit: "单位", age: "数据时效",
    value: "数值", goal: "目标", load: "负载", number: "序号", began: "开始", seconds: "秒", ended: "结束",
    who: "操作者", act: "操作", outcome: "结果", time: "时间", role: "角色",
    pad_label: "遥操作。聚焦此处，按住空格键，再按键移动关节",
    pad_help: "点击此处。按住空格接合；Q W E R T Y 使 1 至 6 号关节正向运动，A S D F G H 反向；Shift 为慢速。松开空格或离开页面，机器人保持不动。",
    view_label: "机器人三维视图：实体为测量值，半透明为指令值。方向键旋转，+ 和 - 缩放",
    no_webgl: "三维视图需要 WebGL，此浏览器不支持。其他功能均可使用。",
    no_scene: "此处没有该机器人的模型，无法绘制。",
    no_cameras: "没有相机。", no_gamepad: "没有手柄。按手柄上任意键启用。",
    gamepad: "手柄：按住肩键接合；摇杆、方向键和扳机移动关节。",
    touch_label: "两个拇指摇杆。手指按住摇杆即接合，抬起则机器人保持不动", stick_left: "左摇杆", stick_right: "右摇杆",
    touch_group: "切换摇杆所控关节", xr_start: "在空间中跟随我的手", xr_end: "结束", xr_clutch: "按住以移动",
    xr_on: "按住手柄握键或此处按钮：夹爪跟随手的运动。扳机使其闭合。B 或 Y 键停止机器人。",
    xr_lost: "当前无法定位手的位置：机器人保持不动。", xr_failed: "头显或手机拒绝了请求",
    engaged: "已接合", released: "已松开：机器人保持", not_armed: "未使能：请先使能", others: "正在此处移动机器人",
    not_live: "非实时", no_console: "与控制台的连接已断开", old_state: "机器人状态已过时", not_read: "尚未读取机器人",
    drive: "移动", verdict: "评判", r_operate: "操作", r_move: "移动", r_watch: "观看", r_stop: "停止", goal_of_task: "任务目标", not_recorded: "未记录", dropped: "丢弃帧数",
    not_sent: "停止指令未发送：没有连接。请使用机器人本体的急停按钮！", sending: "正在停止 …",
    asks_reset: "机器人询问：场景是否就绪？", asks_verdict: "本回合结果如何？", and_verdict: "可先给出评判。",
    chosen: "评判", holder: "当前控制客户端", nobody: "无", reading: "最新读数", period: "周期", overruns: "超时次数",
    longest: "最长周期", periods: "周期数", late: "迟到指令", real_time: "实时调度", recording: "控制器日志",
    held_back: "被防护限制", faults: "故障", mover: "本控制台", recorded: "已记录", bad_token: "该令牌无效。",
    lost_rights: "该令牌已失去权限。", need_reason: "机器人已停止：请填写检查结果，以及为何可以再次运动。",
    idle: "空闲", arming: "使能中", armed: "已使能", moving: "运动中", judging: "等待评判",
    s_disarmed: "未使能", s_arming: "使能中", s_resetting: "复位中", s_ready: "就绪", s_running: "运行中", s_holding: "保持",
    s_stopped: "已停止", old: "过时", measured: "此姿态的数据时效：",
    replay: "回放已记录的回合", first: "回合", second: "叠加", back: "后退一帧", next: "前进一帧", play: "播放", pause: "暂停",
    speed: "速度", to_live: "返回实时", at: "回合中的位置", live: "实时", none: "无", simulation: "其仿真", is_replay: "回放，非实时",
    compare: "比较已记录的回合", begin: "开始", left: "左侧更好", right: "右侧更好", equal: "同样好", skip: "无法判断",
    compare_label: "两个已记录的回合。聚焦此处：左右方向键选择更好的一个，上方向键表示同样好，下方向键跳过",
    compare_help: "哪一个更好？聚焦此处后：← 左侧，→ 右侧，↑ 同样好，↓ 无法判断。", left_one: "左", right_one: "右",
    no_pair: "没有需要您评判的配对了。", not_drawn: "此处无法绘制这两个回合，因此无法比较；请使用支持 WebGL 的浏览器。", prefer: "偏好", user: "环境", assistant: "智能体",
  },
};
// What the console and the robot's server say, in Chinese; what is missing here, as a person's own words, stays as it is.
const PHRASES = [
  [/^armed: the robot is at its start(; not recorded)?$/, (_, bare) => `已使能：机器人位于起始位置${bare ? "；不记录" : ""}`],
  [/^held$/, () => "已保持"], [/^answered$/, () => "已回答"], [/^(success|failure|discard)$/, (_, verdict) => t(verdict)],
  [/^(success|failure|discard); the episode ends$/, (_, verdict) => `${t(verdict)}；回合结束`],
  [/^(success|failure|discard); it goes with the next 'reset done'$/, (_, verdict) => `${t(verdict)}；将随下一次“场景已复位”提交`],
  [/^stopped; the robot confirmed after (\d+) ms$/, (_, ms) => `已停止；机器人在 ${ms} 毫秒后确认`],
  [/^the stop was NOT confirmed, use the robot's own stop button: (.*)$/, (_, rest) => `停止未得到确认，请使用机器人本体的急停按钮：${rest}`],
  [/^the robot is stopped; say what was found there.*$/, () => "机器人已停止：请填写检查结果，以及为何可以再次运动"],
  [/^another stop has come since.*$/, () => "页面显示状态之后又发生了一次停止；请再次查看"],
  [/^a reset is under way already$/, () => "复位已在进行中"], [/^a reset was asked for$/, () => "已请求复位"],
  [/^the robot does not ask for a (reset|verdict) now$/, (_, what) => (what === "reset" ? "机器人当前未请求复位" : "机器人当前未请求评判")],
  [/^(.*) has the role (\w+) here, which does not allow (.*); allowed with ([\w, ]*)(\. Stop is always possible)?$/, (_, who, role, what, roles) => `${who} 的角色是“${t(`r_${role}`)}”，不允许“${t(what)}”；允许的角色：${roles.split(", ").map((one) => t(`r_${one}`)).join("、")}`],
  [/^(.*) may not ([^:]*): (.*) moves the robot; with the role operate, take it\. Stop is always possible$/, (_, who, what, holder) => `${who} 不能“${t(what)}”：${holder} 正在移动机器人；角色“操作”可以接管。停止始终可用`],
  [/^(.*) may not ([^:]*): the episode is that of (.*)\. Stop is always possible$/, (_, who, what, holder) => `${who} 不能“${t(what)}”：该回合属于 ${holder}。停止始终可用`],
  [/^(.*) may not ([^:]*): there is no episode\. Stop is always possible$/, (_, who, what) => `${who} 不能“${t(what)}”：当前没有回合。停止始终可用`],
  [/^the token of (.*) has lost its rights$/, (_, who) => `${who} 的令牌已失去权限`],
  [/^nothing moved: somebody asked to hold before the reset began$/, () => "没有运动：复位开始前有人请求保持"],
  [/^somebody asked to hold during the reset; the robot holds$/, () => "复位期间有人请求保持；机器人保持不动"],
  [/^the server was started$/, () => "服务器已启动"], [/^the server was closed$/, () => "服务器已关闭"], [/^the reset is done$/, () => "复位完成"],
  [/^the robot was opened and read; (.*)$/, () => "机器人已打开并读取"], [/^the first command of the episode$/, () => "本回合的第一条指令"],
  [/^held: no valid command for ([\d.]+) s(.*)$/, (_, seconds) => `已保持：${seconds} 秒内没有有效指令`],
  [/^the episode was ended: (.*)$/, (_, rest) => `回合已结束：${say(rest)}`], [/^the episode is over$/, () => "回合结束"],
  [/^(success|failure|discard), says (.*)$/, (_, verdict, who) => `${who} 评判为“${t(verdict)}”`], [/^held by (.*)$/, (_, who) => `由 ${who} 保持`],
  [/^armed anew by (.*)$/, (_, who) => `由 ${who} 重新使能`], [/^the page of (.*) is gone$/, (_, who) => `${who} 的页面已关闭`],
  [/^(.*) has only the role (\w+) now$/, (_, who, role) => `${who} 现在的角色只是“${t(`r_${role}`)}”`], [/^(.*) has no rights now$/, (_, who) => `${who} 已失去权限`],
  [/^(.*) at the console: (.*)$/, (_, who, text) => `${who} 在控制台：${text === "Stop" ? t("stop") : text}`],
  [/^the reset failed: (.*)$/, (_, rest) => `复位失败：${say(rest)}`], [/^the reset was given up: (.*)$/, (_, rest) => `复位已放弃：${say(rest)}`],
  [/^its client gave the robot back$/, () => "客户端已归还机器人"], [/^its client is gone$/, () => "客户端已断开"],
  [/^its client released the robot$/, () => "客户端已释放机器人"],
];
function say(text) {
  if (language !== "zh" || !text) return text || "";
  for (const [pattern, words] of PHRASES) {
    const parts = pattern.exec(text);
    if (parts) return words(...parts);
  }
  return text;
}
const store = {
  get: (key, area = localStorage) => { try { return area.getItem(key); } catch { return null; } },
  set: (key, value, area = localStorage) => { try { area.setItem(key, value); } catch { /* a private window */ } },
};
let language = store.get("language") || ((navigator.language || "").toLowerCase().startsWith("zh") ? "zh" : "en");
const t = (key) => WORDS[language][key] ?? WORDS.en[key] ?? key;
const $ = (id) => document.getElementById(id);
const put = (element, text) => { if (element.textContent !== text) element.textContent = text; };
const make = (tag, attributes = {}, ...children) => {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
};
const digits = (value, places = 3) => (value === null || value === undefined ? "–" : Number(value).toFixed(places));
const millis = (seconds) => (seconds === null || seconds === undefined ? "–" : `${(seconds * 1e3).toFixed(0)} ms`);

function translate() {
  document.documentElement.lang = language;
  for (const element of document.querySelectorAll("[data-t]")) put(element, t(element.dataset.t));
  for (const element of document.querySelectorAll("[data-a]")) element.setAttribute("aria-label", t(element.dataset.a));
  const other = language === "en" ? "zh" : "en";
  put($("language"), other === "zh" ? "中文" : "English");
  $("language").lang = other;
  buildTables();
  if (replay.shown) replay.show();
  comparison.label();
  render();
}

// -- State -----------------------------------------------------------------------------------------------------

let me = null, robot = null, state = null, question = null, episodes = [], acts = [];
let taken = 0, told = 0; // states and images: the console sends a few more than it was told of
let socket = null, stateAt = 0, retryMs = 300, token = "", nextId = 1, why = "no_console";
const waiting = new Map(); // id of an act -> its name
const mayMove = () => me && (me.role === "move" || me.role === "operate");

function takeToken() {
  const fromLink = new URLSearchParams(location.hash.slice(1)).get("token");
  if (fromLink) {
    store.set("token", fromLink, sessionStorage);
    history.replaceState(null, "", location.pathname);
  }
  token = fromLink || store.get("token", sessionStorage) || "";
}

function connect() {
  if (!token) return showLogin("");
  const url = `${location.protocol === "https:" ? "wss" : "ws"}://${location.host}/ws`;
  socket = new WebSocket(url);
  socket.binaryType = "arraybuffer";
  taken = told = 0;
  socket.onopen = () => socket.send(JSON.stringify({ t: "login", token }));
  socket.onmessage = (event) => (typeof event.data === "string" ? receive(JSON.parse(event.data)) : receiveImage(event.data));
  socket.onclose = (event) => {
    const mine = socket === event.target;
    if (!mine) return;
    socket = null;
    release();
    for (const name of waiting.values()) if (name === "stop") put($("notice"), t("not_sent"));
    waiting.clear();
    if (event.code === 4401) {
      store.set("token", "", sessionStorage);
      token = "";
      return showLogin(t(me ? "lost_rights" : "bad_token"));
    }
    why = "no_console";
    render();
    setTimeout(connect, retryMs);
    retryMs = Math.min(retryMs * 1.6, 3000);
  };
}

function showLogin(problem) {
  me = null;
  $("login").hidden = false;
  $("main").hidden = true;
  $("stop").disabled = true;
  put($("login-error"), problem);
  $("token").focus();
}

function receive(message) {
  switch (message.t) {
    case "welcome":
      me = message;
      retryMs = 300;
      $("login").hidden = true;
      $("main").hidden = false;
      $("stop").disabled = false;
      put($("notice"), "");
      for (const id of ["drive", "view", "cameras", "joints", "sensors", "timing", "episodes", "log"]) $(id).hidden = me.role === "stop";
      $("operate").hidden = !mayMove();
      $("drive").hidden = !mayMove();
      $("compare").hidden = me.role !== "operate";
      comparison.busy = false; // an answer on its way was lost with the connection
      comparison.label();
      $("take-row").hidden = me.role !== "operate";
      put($("me"), `${me.name} (${t(`r_${me.role}`)})`);
      if (robot) seeCameras();
      break;
    case "robot":
      robot = message.robot;
      buildTables();
      buildCameras();
      touch.label();
      if (!replay.shown) scene.load(robot.scene);
      break;
    case "state":
      if (armed && (message.state === "stopped" || (armed === "seen" && !EPISODE.has(message.state)))) { armed = ""; put($("outcome"), ""); }
      if (armed && EPISODE.has(message.state)) armed = "seen";
      taken++; state = message; stateAt = performance.now(); tell(); break;
    case "question": question = message.question; break;
    case "episodes": episodes = message.episodes; renderEpisodes(); break;
    case "acts": acts = message.acts; renderActs(); break;
    case "outcome": takeOutcome(message); break;
    case "replay": replay.take(message); break;
    case "compare": comparison.take(message); break;
  }
  schedule();
}

const EPISODE = new Set(["ready", "running"]);
let armed = ""; // whether the outcome says so, and the state has shown it: it goes when that is true no more
let telling = false;
function tell() {
  if (telling || taken === told) return;
  telling = true;
  told = taken;
  send({ t: "seen", n: taken });
  setTimeout(() => { telling = false; tell(); }, 25);
}

function send(message) {
  if (!socket || socket.readyState !== WebSocket.OPEN || !me) return false;
  socket.send(JSON.stringify(message));
  return true;
}

function act(name) {
  const id = nextId++ % 2147483647;
  const message = { t: "act", id, act: name, text: $("text").value.slice(0, 500) };
  if (state && Number.isInteger(state.stop_number)) message.stop_number = state.stop_number;
  if (me && me.role === "operate" && (name === "arm" || name === "hold")) message.take = $("take").checked;
  if (!send(message)) return false;
  waiting.set(id, name);
  return true;
}

function stop() {
  release();
  put($("notice"), act("stop") ? t("sending") : t("not_sent"));
}

function takeOutcome(message) {
  waiting.delete(message.id);
  const line = `${t(message.act)}: ${say(message.text)}`;
  if (message.act === "stop") put($("notice"), line);
  put($("outcome"), line);
  $("outcome").className = message.ok ? "good" : "bad";
  armed = message.ok && message.act === "arm" ? "told" : "";
  if (message.ok) {
    $("text").value = "";
    if (message.act === "arm") { $("take").checked = false; put($("notice"), ""); }
  }
}

// -- What is shown ---------------------------------------------------------------------------------------------

let planned = false;
function schedule() {
  if (planned) return;
  planned = true;
  const draw = () => { if (planned) { planned = false; render(); } };
  requestAnimationFrame(draw);
  setTimeout(draw, 100); // also in a hidden tab
}

/** Why nothing is known of the robot; empty where the console and the robot's server answer. */
function lost() {
  if (!socket || !me) return t("no_console");
  if (!state) return t("old_state");
  if (!state.live) return state.problem;
  return performance.now() - stateAt > 1500 ? t("no_console") : "";
}
/** Why the readings are not those of now, in whatever state the robot is. */
function outdated() {
  if (!me || me.role === "stop") return "";
  if (typeof state.age_s !== "number") return [t("not_read"), state.unread].filter(Boolean).join(": ");
  return state.age_s > 1 ? `${t("old_state")}: ${state.age_s.toFixed(1)} s` : "";
}

function render() {
  const gone = $("login").hidden ? lost() : "", stale = gone || ($("login").hidden ? outdated() : "");
  $("stale").hidden = !stale;
  put($("stale"), stale ? `${t("not_live")}: ${stale}` : "");
  document.body.dataset.live = String(!stale);
  if (robot) { put($("robot"), robot.name); document.title = `${robot.name} – ${state ? t(`s_${state.state}`) : ""}`; }
  if (!state) return;
  const name = state.state || "";
  put($("state"), name ? t(`s_${name}`) : "–");
  $("state").dataset.s = name;
  put($("why"), say(state.why));
  renderActsAllowed(gone);
  if (!me || me.role === "stop" || !robot) return;
  renderQuestion();
  renderJoints();
  renderSensors();
  renderTiming();
  renderPad();
  renderCameraAges();
  renderGoal();
  if (replay.shown) return;
  scene.markers = places();
  scene.draw(state.pose || [], state.goal || []);
  if (!$("scene").hidden) put($("scene-note"), state.age_s > 1 ? `${t("measured")} ${state.age_s.toFixed(1)} s` : "");
}

const mine = () => Boolean(state.mover.owner_id) && state.mover.owner_id === me.id;
function renderActsAllowed(gone) {
  if (!me) return;
  const asks = question || {}, phase = state.mover.phase;
  const allowed = {
    arm: !gone && phase !== "arming", hold: true, // of another person's episode the console says whose it is
    reset_done: asks.kind === "reset", reset_refused: asks.kind === "reset",
  };
  const verdict = asks.owner_id ? asks.owner_id === me.id : asks.kind === "verdict" || (asks.kind === "reset" && asks.verdict) || (!question && mine() && (phase === "armed" || phase === "moving"));
  for (const button of document.querySelectorAll("[data-act]")) {
    const name = button.dataset.act;
    button.disabled = !(name in allowed ? allowed[name] : verdict);
    button.classList.toggle("asked", (asks.kind === "reset" && name === "reset_done") || (asks.kind === "verdict" && ["success", "failure", "discard"].includes(name)));
  }
}

function renderQuestion() {
  $("question").hidden = !question;
  if (!question) return;
  const words = [t(question.kind === "reset" ? "asks_reset" : "asks_verdict"), question.owner_id && question.owner_id !== me.id ? `(${state.mover.owner})` : "", question.text];
  if (question.kind === "reset" && question.verdict) words.push(question.chosen ? `${t("chosen")}: ${t(question.chosen)}` : t("and_verdict"));
  put($("question-text"), words.filter(Boolean).join(" – "));
}

let jointRows = [], sensorRows = [];
const columnsBeside = (command) => robot.sensors.filter((sensor) => sensor.name !== command.measured_by && sensor.elements.length === command.elements.length && sensor.elements.every((name, index) => name === command.elements[index]));

function buildTables() {
  if (!robot) return;
  jointRows = [];
  sensorRows = [];
  const joints = [], first = robot.commands[0];
  const beside = first ? columnsBeside(first) : [];
  const head = [t("name"), t("range"), t("value"), t("goal"), ...beside.map((sensor) => `${sensor.name} (${sensor.unit})`)];
  joints.push(make("thead", {}, make("tr", {}, ...head.map((text) => make("th", { scope: "col" }, text)))));
  const body = make("tbody");
  for (const command of robot.commands) {
    command.elements.forEach((element, index) => {
      const mark = make("i"), goal = make("i", { class: "goal" });
      const range = make("div", { class: "range" }, mark, goal);
      const value = make("td", { class: "n" }), target = make("td", { class: "n" });
      const others = (command === first ? beside : []).map((sensor) => [sensor, make("td", { class: "n" })]);
      body.append(make("tr", {}, make("th", { scope: "row" }, element), make("td", {}, range), value, target, ...others.map(([, cell]) => cell)));
      jointRows.push({ command, index, element, range, mark, goal, value, target, others });
    });
  }
  joints.push(body);
  $("joint-table").replaceChildren(...joints);
  const rows = robot.sensors.map((sensor) => {
    const value = make("td"), age = make("td", { class: "n" });
    sensorRows.push({ sensor, value, age });
    return make("tr", {}, make("th", { scope: "row", title: sensor.meaning }, sensor.name), value, make("td", {}, sensor.unit), age);
  });
  const titles = [t("name"), t("value"), t("unit"), t("age")].map((text) => make("th", { scope: "col" }, text));
  $("sensor-table").replaceChildren(make("thead", {}, make("tr", {}, ...titles)), make("tbody", {}, ...rows));
  renderEpisodes();
  renderActs();
}

function renderJoints() {
  for (const { command, index, element, range, mark, goal, value, target, others } of jointRows) {
    const low = command.low[index], high = command.high[index];
    const at = state.sensors?.[command.measured_by]?.[index], aim = state.applied?.[command.name]?.[index];
    const share = (number) => (number === null || number === undefined || low === null || high === null || high <= low ? null : Math.min(1, Math.max(0, (number - low) / (high - low))));
    const here = share(at), there = share(aim);
    mark.hidden = here === null;
    goal.hidden = there === null;
    if (here !== null) mark.style.left = `${here * 100}%`;
    const meter = here === null ? {} : { role: "meter", "aria-label": element, "aria-valuemin": low, "aria-valuemax": high, "aria-valuenow": at };
    for (const name of ["role", "aria-label", "aria-valuemin", "aria-valuemax", "aria-valuenow"]) {
      if (name in meter) range.setAttribute(name, meter[name]); else range.removeAttribute(name);
    }
    if (there !== null) goal.style.left = `${there * 100}%`;
    value.classList.toggle("near", here !== null && (here < 0.02 || here > 0.98));
    put(value, digits(at));
    put(target, digits(aim));
    for (const [sensor, cell] of others) {
      const number = state.sensors?.[sensor.name]?.[index], most = robot.efforts[sensor.name];
      const limit = most ? most[most.length > 1 ? index : 0] : null;
      cell.classList.toggle("near", limit !== null && limit !== undefined && Math.abs(number) > 0.8 * limit);
      put(cell, limit ? `${digits(number, 2)} / ${limit}` : digits(number));
    }
  }
}

function renderSensors() {
  for (const { sensor, value, age } of sensorRows) {
    const numbers = state.sensors?.[sensor.name] || [], seconds = state.ages_s?.[sensor.name];
    put(value, numbers.slice(0, 12).map((number) => digits(number)).join("  ") + (numbers.length > 12 ? " …" : ""));
    const most = robot.max_age_s[sensor.name];
    age.classList.toggle("near", most !== undefined && seconds > most);
    put(age, most !== undefined && seconds > most ? `${millis(seconds)} ${t("old")}` : millis(seconds));
  }
}

/** The goal of the episode in numbers; a place in metres is drawn as well. */
function renderGoal() {
  const goal = Object.entries(state.mover.goal || {});
  $("goal").hidden = !goal.length;
  put($("goal"), goal.length ? `${t("goal_of_task")}: ${goal.map(([name, { values, unit }]) => `${name} = ${[values].flat().map((one) => (typeof one === "number" ? digits(one) : one)).join(", ")}${unit === "1" ? "" : ` ${unit}`}`).join("; ")}` : "");
}
const places = () => Object.values(state.mover.goal || {}).filter(({ values, unit }) => unit === "m" && values.length === 3).map(({ values }) => values);

let timingRows = null;
function renderTiming() {
  const loop = state.loop || {}, mover = state.mover;
  const rows = {
    holder: mover.owner ? `${mover.owner} (${t("mover")})` : state.holder || t("nobody"),
    mover: [t(mover.phase), mover.owner, mover.recording ? `${mover.recorded} ${t("recorded")}` : t("not_recorded"), mover.task].filter(Boolean).join(", "),
    reading: millis(state.age_s), period: `${digits(loop.period_ms, 2)} ms`, longest: `${digits(loop.longest_ms, 2)} ms`,
    overruns: `${loop.overruns ?? "–"} / ${loop.periods ?? "–"} ${t("periods")}`, late: String(state.late_commands ?? "–"),
    real_time: state.real_time || "–", held_back: state.guard ? `${state.guard.held_back} (${state.guard.last ?? ""})` : "–",
    recording: state.recording ? [state.recording.on ? state.recording.run : state.recording.why || t("not_recorded"), state.recording.dropped ? `${t("dropped")} ${state.recording.dropped}` : ""].filter(Boolean).join(", ") : t("not_recorded"),
    faults: (state.faults || []).join("; ") || "–",
  };
  if (!timingRows) {
    timingRows = {};
    const list = Object.keys(rows).flatMap((key) => {
      timingRows[key] = make("dd");
      return [make("dt", { "data-t": key }, t(key)), timingRows[key]];
    });
    $("timing-list").replaceChildren(...list);
  }
  for (const [key, text] of Object.entries(rows)) put(timingRows[key], text);
  timingRows.faults.className = state.faults?.length ? "bad" : "";
}

const clockTime = (seconds) => new Date(seconds * 1e3).toLocaleTimeString(language === "zh" ? "zh-CN" : "en-GB");
function fill(table, titles, rows) {
  const head = make("tr", {}, ...titles.map((key) => make("th", { scope: "col" }, t(key))));
  const body = rows.map((cells) => make("tr", {}, ...cells.map((text) => make("td", {}, String(text)))));
  table.replaceChildren(make("thead", {}, head), make("tbody", {}, ...body));
}
function renderEpisodes() {
  fill($("episode-table"), ["number", "began", "seconds", "who", "ended"], episodes.slice(0, 50).map((episode) => [episode.number, clockTime(episode.began_wall_s), episode.seconds.toFixed(1), episode.holder, `${t(`s_${episode.state}`)}: ${say(episode.why)}`]));
}
function renderActs() {
  fill($("act-table"), ["time", "who", "act", "outcome"], acts.map((one) => [clockTime(one.wall_s), `${one.name} (${t(`r_${one.role}`)})`, [t(one.act), one.text].filter(Boolean).join(": "), say(one.outcome)]));
}

// -- Cameras ---------------------------------------------------------------------------------------------------

const cameraViews = new Map();
function buildCameras() {
  for (const view of cameraViews.values()) URL.revokeObjectURL(view.image.src);
  cameraViews.clear();
  const figures = robot.cameras.map((name) => {
    const image = make("img", { alt: name }), age = make("span");
    cameraViews.set(name, { image, age, stamp: 0, busy: false });
    return make("figure", {}, image, make("figcaption", {}, make("span", {}, name), age));
  });
  $("camera-list").replaceChildren(...(figures.length ? figures : [make("p", { class: "quiet", "data-t": "no_cameras" }, t("no_cameras"))]));
  seeCameras();
}
function seeCameras() { send({ t: "see", cameras: document.hidden ? [] : robot.cameras }); }

function receiveImage(buffer) {
  taken++;
  tell();
  const bytes = new DataView(buffer), length = bytes.getUint8(0);
  const name = new TextDecoder().decode(new Uint8Array(buffer, 1, length));
  const view = cameraViews.get(name);
  if (!view) return;
  view.stamp = Number(bytes.getBigInt64(1 + length));
  if (view.busy) return; // the next image will do
  view.busy = true;
  const url = URL.createObjectURL(new Blob([new Uint8Array(buffer, 9 + length)], { type: "image/jpeg" })), before = view.image.src;
  view.image.onload = view.image.onerror = () => { view.busy = false; if (before) URL.revokeObjectURL(before); };
  view.image.src = url;
}
function renderCameraAges() {
  for (const view of cameraViews.values()) {
    const seconds = view.stamp && state.sent_ns ? Math.max(0, (state.sent_ns - view.stamp) / 1e9) : null;
    put(view.age, millis(seconds));
    view.age.classList.toggle("near", seconds !== null && seconds > 1);
  }
}

// -- Teleoperation ---------------------------------------------------------------------------------------------

const UP = ["KeyQ", "KeyW", "KeyE", "KeyR", "KeyT", "KeyY", "KeyU", "KeyI", "KeyO", "KeyP"];
const DOWN = ["KeyA", "KeyS", "KeyD", "KeyF", "KeyG", "KeyH", "KeyJ", "KeyK", "KeyL", "Semicolon"];
const pressed = new Set();
let engaged = false, device = "keyboard";

const size = () => (robot ? robot.commands.reduce((sum, command) => sum + command.elements.length, 0) : 0);
const mineToMove = () => mayMove() && state && mine() && (state.mover.phase === "armed" || state.mover.phase === "moving");

function keyAxes() {
  const slow = pressed.has("ShiftLeft") || pressed.has("ShiftRight") ? 0.3 : 1;
  return Array.from({ length: Math.min(size(), 64) }, (_, index) => slow * (Number(pressed.has(UP[index])) - Number(pressed.has(DOWN[index]))));
}
const dead = (value) => (Math.abs(value) < 0.12 ? 0 : Math.max(-1, Math.min(1, value)));
function gamepadAxes() {
  const pad = (navigator.getGamepads ? [...navigator.getGamepads()] : []).find((one) => one && one.connected);
  if (!pad) return null;
  const button = (index) => pad.buttons[index]?.value || 0;
  const axes = [dead(-(pad.axes[0] || 0)), dead(-(pad.axes[1] || 0)), dead(pad.axes[3] || 0), dead(button(12) - button(13)), dead(button(15) - button(14)), dead(button(7) - button(6))];
  return { clutch: button(4) > 0.5 || button(5) > 0.5, axes: axes.slice(0, size()), any: true };
}

// Two thumb sticks for a phone. A finger on a stick is the closed clutch.
const touch = {
  group: 0, sticks: [[0, 0], [0, 0]], fingers: [null, null],
  get held() { return this.fingers.some((finger) => finger !== null); },
  get groups() { return Math.max(1, Math.ceil(size() / 4)); },
  axes() {
    const axes = Array(Math.min(size(), 64)).fill(0), values = [...this.sticks[0], ...this.sticks[1]];
    values.forEach((value, index) => { if (4 * this.group + index < axes.length) axes[4 * this.group + index] = dead(value); });
    return axes;
  },
  move(number, event) {
    const box = $(`stick-${number}`).getBoundingClientRect(), radius = box.width / 2;
    const bound = (value) => Math.max(-1, Math.min(1, value / radius));
    this.sticks[number] = [bound(event.clientX - box.left - radius), bound(box.top + box.height / 2 - event.clientY)];
    this.show(number);
  },
  lift(number) { this.fingers[number] = null; this.sticks[number] = [0, 0]; this.show(number); },
  release() { this.lift(0); this.lift(1); },
  show(number) { $(`stick-${number}`).firstElementChild.style.translate = `${this.sticks[number][0] * 2}rem ${-this.sticks[number][1] * 2}rem`; },
  label() {
    const names = robot ? robot.commands.flatMap((command) => command.elements).slice(4 * this.group, 4 * this.group + 4) : [];
    put($("touch-group"), names.join(", "));
  },
  open() {
    for (const number of [0, 1]) {
      const stick = $(`stick-${number}`);
      stick.addEventListener("pointerdown", (event) => {
        event.preventDefault();
        if (this.fingers[number] !== null) return;
        try { stick.setPointerCapture(event.pointerId); } catch { /* a pointer that is gone already */ }
        this.fingers[number] = event.pointerId;
        this.move(number, event);
      });
      stick.addEventListener("pointermove", (event) => { if (this.fingers[number] === event.pointerId) this.move(number, event); });
      for (const end of ["pointerup", "pointercancel", "lostpointercapture"]) stick.addEventListener(end, (event) => { if (this.fingers[number] === event.pointerId) this.lift(number); });
      stick.addEventListener("contextmenu", (event) => event.preventDefault());
    }
    $("touch-group").addEventListener("click", () => { this.release(); this.group = (this.group + 1) % this.groups; this.label(); });
  },
};

// A headset's controller, or a phone that knows where it is (WebXR): the hand's place, from which the console makes goals.
const xr = {
  mode: "", session: null, space: null, gl: null, hand: null, button: false, held: false, spent: false, heading: null, stopped: false,
  async look() {
    for (const mode of ["immersive-ar", "immersive-vr"]) {
      try { if (!this.mode && navigator.xr && (await navigator.xr.isSessionSupported(mode))) this.mode = mode; } catch { /* a policy forbids it */ }
    }
    $("xr-start").hidden = !this.mode;
    $("touch").hidden = Boolean(this.mode) || !matchMedia("(pointer: coarse)").matches;
  },
  async start() {
    if (this.session) return void this.session.end();
    try {
      const session = await navigator.xr.requestSession(this.mode, { optionalFeatures: ["local-floor", "dom-overlay"], domOverlay: { root: document.body } });
      this.gl = document.createElement("canvas").getContext("webgl", { xrCompatible: true });
      session.updateRenderState({ baseLayer: new XRWebGLLayer(session, this.gl) });
      this.space = await session.requestReferenceSpace("local-floor").catch(() => session.requestReferenceSpace("local"));
      Object.assign(this, { session, hand: null, held: false, spent: true });
      session.addEventListener("end", () => this.over());
      session.addEventListener("visibilitychange", () => { if (session.visibilityState !== "visible") release(); });
      session.requestAnimationFrame((_, frame) => this.frame(frame));
      $("xr-clutch").hidden = false;
      $("xr-start").dataset.t = "xr_end";
      this.note("xr_on");
    } catch (error) { this.session = null; put($("xr-note"), `${t("xr_failed")}: ${error.message}`); }
    translate();
  },
  over() {
    release();
    Object.assign(this, { session: null, space: null, hand: null, held: false });
    $("xr-clutch").hidden = true;
    $("xr-start").dataset.t = "xr_start";
    this.note("");
    translate();
  },
  note(key) { $("xr-note").dataset.t = key; put($("xr-note"), key ? t(key) : ""); },
  get live() { return Boolean(this.session && this.session.visibilityState === "visible"); },
  get wants() {
    if (!this.held) this.spent = false;
    return this.live && this.held && !this.spent && this.hand !== null;
  },
  release() { this.spent = true; this.button = false; }, // until the clutch was let go of, and is closed anew
  frame(frame) {
    const session = this.session;
    if (!session) return;
    session.requestAnimationFrame((_, next) => this.frame(next));
    this.gl.bindFramebuffer(this.gl.FRAMEBUFFER, session.renderState.baseLayer ? session.renderState.baseLayer.framebuffer : null);
    this.gl.clearColor(0, 0, 0, 0);
    this.gl.clear(this.gl.COLOR_BUFFER_BIT);
    const source = [...session.inputSources].find((one) => one.gripSpace && one.gamepad);
    const viewer = frame.getViewerPose(this.space);
    const pose = source ? frame.getPose(source.gripSpace, this.space) : viewer;
    const pressedAt = (index) => (source && source.gamepad.buttons[index] ? source.gamepad.buttons[index].value : 0);
    if (pressedAt(5) > 0.5) { if (!this.stopped) stop(); this.stopped = true; } else this.stopped = false;
    const held = this.button || pressedAt(1) > 0.5;
    if (held && !this.held && viewer && !engaged) this.heading = heading(viewer.transform.orientation);
    this.held = held;
    if (pose && this.heading !== null) this.hand = place(pose.transform, this.heading, pressedAt(0)); else if (!pose) this.hand = null;
    if (session.visibilityState === "visible") this.note(pose && !pose.emulatedPosition ? "xr_on" : "xr_lost");
    if (pose && pose.emulatedPosition) this.hand = null; // its place is guessed
    if (this.hand === null && engaged) release();
  },
  open() {
    $("xr-start").addEventListener("click", () => this.start());
    const button = $("xr-clutch");
    button.addEventListener("pointerdown", (event) => { event.preventDefault(); this.button = true; });
    for (const end of ["pointerup", "pointercancel", "pointerleave"]) button.addEventListener(end, () => { this.button = false; });
    button.addEventListener("beforexrselect", (event) => event.preventDefault());
    this.look();
  },
};
/** Angle about the vertical by which the person looks away from the reference space's forward, rad. */
function heading({ x, y, z, w }) { return Math.atan2(2 * (w * y + x * z), 1 - 2 * (x * x + y * y)); }
/** A hand as the console takes it: forward, left, up (m) as the person faced; tipped down, turned clockwise (rad); closed (0 to 1). */
function place({ position: p, orientation: q }, turned, closed) {
  const c = Math.cos(turned), s = Math.sin(turned);
  const ahead = -p.z * c - p.x * s, right = p.x * c - p.z * s;
  // The hand's forward axis and its right-hand axis, turned into the person's frame, give its tip and its roll.
  const forward = [-2 * (q.x * q.z + q.w * q.y), -2 * (q.y * q.z - q.w * q.x), -(1 - 2 * (q.x * q.x + q.y * q.y))];
  const side = 2 * (q.x * q.y + q.w * q.z), up = 1 - 2 * (q.x * q.x + q.z * q.z);
  return [ahead, -right, p.y, -Math.asin(Math.max(-1, Math.min(1, forward[1]))), -Math.atan2(side, up), closed];
}

function release() {
  pressed.clear();
  touch.release();
  xr.release();
  if (!engaged) return;
  engaged = false;
  send({ t: "drive", engaged: false, axes: [], device });
}

function tick() {
  const pad = document.hasFocus() && !document.hidden ? gamepadAxes() : null;
  put($("gamepad"), t(pad ? "gamepad" : "no_gamepad"));
  const byKeys = pressed.has("Space") && document.activeElement === $("pad");
  const byHand = xr.wants, byTouch = touch.held && !document.hidden;
  const wants = mineToMove() && (byHand || byTouch || (document.hasFocus() && !document.hidden && (byKeys || Boolean(pad && pad.clutch))));
  if (!wants) {
    if (engaged) { engaged = false; send({ t: "drive", engaged: false, axes: [], device }); schedule(); }
    return;
  }
  device = byHand ? "xr" : byTouch ? "touch" : byKeys ? "keyboard" : "gamepad";
  if (!engaged) { engaged = true; schedule(); }
  if (byHand) send({ t: "drive", engaged: true, axes: [], device, hand: xr.hand });
  else send({ t: "drive", engaged: true, axes: byTouch ? touch.axes() : byKeys ? keyAxes() : pad.axes, device });
}

function renderPad() {
  const pad = $("pad");
  pad.dataset.engaged = String(engaged);
  const owner = state.mover.owner;
  const text = engaged ? t("engaged") : mineToMove() ? t("released") : owner && !mine() ? `${owner} ${t("others")}` : t("not_armed");
  put($("clutch"), text);
}

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
  gl: null, program: null, bodies: [], center: [0, 0, 0], extent: 1, azimuth: -0.9, elevation: 0.45, distance: 1, aimed: false, last: null,
  open() {
    const canvas = $(canvasId);
    try { this.gl = canvas.getContext("webgl", { antialias: true, alpha: true }); } catch { this.gl = null; }
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
  say(key) { $(noteId).dataset.t = key; put($(noteId), t(key)); $(canvasId).hidden = true; },
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
    for (const body of this.bodies) if (body) gl.deleteBuffer(body.buffer);
    this.bodies = [];
    if (!this.marker) {
      const list = solid({ shape: "sphere", size: [0.012, 0, 0] }, 1).flatMap((face) => face.flatMap(({ p, n }) => [...p, ...n, 0.1, 0.75, 0.25, 1]));
      this.marker = { buffer: gl.createBuffer(), count: list.length / 10 };
      gl.bindBuffer(gl.ARRAY_BUFFER, this.marker.buffer);
      gl.bufferData(gl.ARRAY_BUFFER, new Float32Array(list), gl.STATIC_DRAW);
    }
    [this.center, this.extent] = [model.center, model.extent || 1];
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
    const canvas = $(canvasId), scale = Math.min(devicePixelRatio || 1, 2);
    const width = Math.round(canvas.clientWidth * scale), height = Math.round(canvas.clientHeight * scale);
    if (!width || !height) return;
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

// -- Recorded episodes in the place of the live robot ---------------------------------------------------------

const replay = {
  logs: [null, null], at: 0, playing: false, since: 0, shown: false, list: [],
  ask(slot, value) {
    this.logs[slot] = null;
    if (value === "") return this.show();
    const simulated = value === "sim", episode = simulated ? this.logs[0]?.episode : Number(value);
    if (episode === undefined) return undefined;
    put($("replay-note"), "…");
    send({ t: "replay", slot, episode, simulated });
    return undefined;
  },
  take(message) {
    put($("replay-note"), message.problem);
    if (message.list) {
      this.list = message.list;
      const option = (value, text) => make("option", { value }, text), word = (value, key) => make("option", { value, "data-t": key }, t(key));
      const names = this.list.map((one) => option(one.episode, [one.episode, `${one.seconds} s`, one.task, one.operator, one.verdict].filter((part) => part !== "").join(" · ")));
      $("replay-0").replaceChildren(word("", "live"), ...names);
      $("replay-1").replaceChildren(word("", "none"), word("sim", "simulation"), ...names.map((one) => one.cloneNode(true)));
    } else if (message.log) {
      this.logs[message.slot] = message.log;
      if (message.slot === 0) { this.at = 0; scene.load(message.log.scene); }
      this.show();
    }
  },
  get length() { return this.logs[0] ? this.logs[0].poses.length : 0; },
  show() {
    const first = this.logs[0], second = this.logs[1];
    this.shown = Boolean(first);
    $("view").dataset.replay = String(this.shown);
    if (!first) { if (robot) scene.load(robot.scene); return schedule(); }
    this.at = Math.max(0, Math.min(this.length - 1, this.at));
    $("replay-at").max = String(this.length - 1);
    $("replay-at").value = String(Math.floor(this.at));
    const seconds = Math.floor(this.at) / first.rate_hz;
    const other = second ? second.poses[Math.min(second.poses.length - 1, Math.round(seconds * second.rate_hz))] : [];
    scene.markers = [];
    scene.draw(first.poses[Math.floor(this.at)], other);
    put($("scene-note"), `${t("is_replay")}: ${first.episode}, ${seconds.toFixed(2)} s (${Math.floor(this.at)} / ${this.length - 1})`);
    put($("replay-play"), t(this.playing ? "pause" : "play"));
    return undefined;
  },
  step(frames) { this.playing = false; this.at = Math.floor(this.at) + frames; this.show(); },
  run(now) {
    if (this.playing && this.logs[0]) {
      this.at += ((now - this.since) / 1e3) * this.logs[0].rate_hz * Number($("replay-speed").value);
      if (this.at >= this.length - 1) { this.at = this.length - 1; this.playing = false; }
      this.show();
    }
    this.since = now;
    if (this.playing) requestAnimationFrame((time) => this.run(time));
  },
  play() {
    this.playing = !this.playing;
    if (this.playing && this.at >= this.length - 1) this.at = 0;
    this.since = performance.now();
    this.show();
    if (this.playing) requestAnimationFrame((time) => this.run(time));
  },
  open() {
    $("replay").addEventListener("toggle", () => { if ($("replay").open) send({ t: "replay" }); });
    $("replay-0").addEventListener("change", (event) => this.ask(0, event.target.value));
    $("replay-1").addEventListener("change", (event) => this.ask(1, event.target.value));
    $("replay-back").addEventListener("click", () => this.step(-1));
    $("replay-next").addEventListener("click", () => this.step(1));
    $("replay-play").addEventListener("click", () => this.play());
    $("replay-at").addEventListener("input", (event) => { this.at = Number(event.target.value); this.show(); });
    $("replay-end").addEventListener("click", () => { this.playing = false; this.logs = [null, null]; $("replay-0").value = ""; $("replay-1").value = ""; this.show(); });
  },
};

// -- Two recorded episodes, of which a person says which is better ---------------------------------------------

const comparison = {
  pair: 0, kind: "", logs: [], scenes: null, at: 0, playing: false, since: 0, busy: false, problem: "", outcome: "", begun: false,
  ask(choice) {
    if (this.busy || (choice && !this.allows(choice))) return;
    const question = choice ? { t: "compare", pair: this.pair, choice } : { t: "compare" };
    this.busy = send(question);
    this.begun = true;
    this.label();
  },
  get drawn() { return this.kind !== "motion" || Boolean(this.scenes && this.scenes.every((one) => one.gl)); },
  allows(choice) { return this.pair > 0 && !this.busy && (choice === "skip" || (!this.problem && this.drawn)); },
  take(message) {
    Object.assign(this, { busy: false, pair: message.pair, kind: message.kind || "", problem: message.problem, outcome: message.outcome, logs: [] });
    $("compare-motion").hidden = this.kind !== "motion";
    $("compare-chat").hidden = this.kind !== "chat";
    if (this.kind === "chat") [message.left, message.right].forEach((one, side) => $(`chat-${side}`).replaceChildren(...one.messages.flatMap(({ role, content }) => [make("dt", { "data-t": role }, t(role)), make("dd", {}, content)])));
    if (this.kind === "motion") this.open([message.left, message.right]);
    this.label();
  },
  label() {
    for (const button of document.querySelectorAll("[data-choice]")) button.disabled = !this.allows(button.dataset.choice);
    $("compare-begin").hidden = this.begun && (this.pair > 0 || this.busy);
    $("compare-play").disabled = this.kind !== "motion";
    put($("compare-play"), t(this.playing ? "pause" : "play"));
    put($("compare-note"), this.busy ? "…" : [this.outcome, this.problem || (this.begun && !this.pair ? t("no_pair") : this.drawn ? "" : t("not_drawn"))].filter(Boolean).join(". "));
    $("compare-note").className = this.problem || !this.drawn ? "bad" : "quiet";
  },
  open(logs) {
    if (!this.scenes) {
      this.scenes = [0, 1].map((side) => drawing(`compare-${side}`, `compare-note-${side}`));
      [this.scenes[0].beside, this.scenes[1].beside] = [this.scenes[1], this.scenes[0]];
      for (const one of this.scenes) one.open();
    }
    this.logs = logs;
    logs.forEach((log, side) => this.scenes[side].load(log.scene));
    this.at = 0;
    $("compare-at").max = String(this.seconds);
    this.show();
    const still = matchMedia("(prefers-reduced-motion: reduce)").matches;
    if (!still && !this.playing) this.play();
  },
  get seconds() { return Math.max(...this.logs.map((log) => (log.poses.length - 1) / log.rate_hz)); },
  show() {
    if (!this.logs.length) return;
    this.logs.forEach((log, side) => this.scenes[side].draw(log.poses[Math.min(log.poses.length - 1, Math.round(this.at * log.rate_hz))], []));
    $("compare-at").value = String(this.at);
  },
  play() {
    this.playing = !this.playing;
    if (this.playing && this.logs.length && this.at >= this.seconds) this.at = 0;
    this.since = performance.now();
    this.label();
    if (this.playing) requestAnimationFrame((time) => this.run(time));
  },
  run(now) {
    if (!this.playing) return;
    if (this.logs.length) {
      this.at += (now - this.since) / 1e3;
      if (this.at > this.seconds + 0.5) this.at = 0; // again, after a moment at the end
      this.show();
    }
    this.since = now;
    requestAnimationFrame((time) => this.run(time));
  },
  start() {
    $("compare-begin").addEventListener("click", () => { this.ask(); $("compare-group").focus(); });
    for (const button of document.querySelectorAll("[data-choice]")) button.addEventListener("click", () => this.ask(button.dataset.choice));
    $("compare-play").addEventListener("click", () => this.play());
    $("compare-at").addEventListener("input", (event) => { this.playing = false; this.at = Number(event.target.value); this.show(); this.label(); });
    $("compare-group").addEventListener("keydown", (event) => {
      const choice = { ArrowLeft: "left", ArrowRight: "right", ArrowUp: "equal", ArrowDown: "skip" }[event.key];
      if (!choice || event.target !== $("compare-group") || event.ctrlKey || event.metaKey || event.altKey || event.shiftKey) return;
      event.preventDefault();
      if (!event.repeat) this.ask(choice);
    });
  },
};

// -- Begin -----------------------------------------------------------------------------------------------------

let pointerStopped = 0;
$("stop").addEventListener("pointerdown", (event) => { if (event.button === 0) { pointerStopped = performance.now(); stop(); } });
$("stop").addEventListener("click", () => { if (performance.now() - pointerStopped > 1000) stop(); }); // by keyboard or screen reader
addEventListener("keydown", (event) => {
  if (event.key === "Escape" && !event.repeat) { event.preventDefault(); stop(); }
}, true);
for (const button of document.querySelectorAll("[data-act]")) button.addEventListener("click", () => {
  const name = button.dataset.act;
  if (name === "arm" && state && state.state === "stopped" && !$("text").value.trim()) {
    put($("outcome"), t("need_reason"));
    $("outcome").className = "bad";
    $("text").focus();
    return;
  }
  put($("outcome"), act(name) ? `${t(name)} …` : t("no_console"));
  $("outcome").className = "";
});
$("pad").addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.key === "Tab" || event.key === "Escape") return;
  event.preventDefault();
  pressed.add(event.code);
});
$("pad").addEventListener("keyup", (event) => pressed.delete(event.code));
$("pad").addEventListener("pointerdown", () => $("pad").focus());
$("pad").addEventListener("blur", release);
addEventListener("blur", release);
addEventListener("pagehide", release);
document.addEventListener("visibilitychange", () => { if (document.hidden) release(); if (robot) seeCameras(); });
$("login").querySelector("form").addEventListener("submit", (event) => {
  event.preventDefault();
  token = $("token").value.trim();
  $("token").value = "";
  store.set("token", token, sessionStorage);
  connect();
});
$("language").addEventListener("click", () => { language = language === "en" ? "zh" : "en"; store.set("language", language); timingRows = null; if (me) put($("me"), `${me.name} (${t(`r_${me.role}`)})`); put($("outcome"), ""); translate(); });
$("theme").addEventListener("click", () => {
  const dark = (document.documentElement.dataset.theme || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light")) === "dark";
  document.documentElement.dataset.theme = dark ? "light" : "dark";
  store.set("theme", document.documentElement.dataset.theme);
  scene.again();
});
if (store.get("theme")) document.documentElement.dataset.theme = store.get("theme");
addEventListener("resize", () => { scene.again(); comparison.show(); });
setInterval(tick, 33);
setInterval(schedule, 250);
scene.open();
replay.open();
comparison.start();
touch.open();
xr.open();
translate();
takeToken();
connect();
