"use strict";
// The words of the page, and the small functions that every part of it uses.

const WORDS = {
  en: {
    stop: "STOP", stop_hint: "Stop the robot now. Key: Escape", theme: "Theme", login: "Log in", token: "Token", log_in: "Enter",
    operate: "Operate", remark: "Reason or remark", take: "take the robot from its holder", arm: "Arm", hold: "Hold",
    reset_done: "Reset done", reset_refused: "Not ready", success: "Success", failure: "Failure", discard: "Discard",
    teleop: "Teleoperation", view: "Robot", cameras: "Cameras", joints: "Joints", sensors: "Sensors",
    timing: "Loop and server", episodes: "Episodes", acts: "Acts", name: "Name", range: "Range", unit: "Unit", age: "Age",
    value: "Value", goal: "Goal", number: "No.", began: "Began", seconds: "Seconds", ended: "Ended",
    who: "Who", act: "Act", outcome: "Outcome", time: "Time",
    pad_label: "Teleoperation. Focus here, hold the space bar, and press keys to move joints",
    pad_help: "Click here. Hold Space to engage, and press a joint's key for up or down: #. Shift is slow. Releasing Space, or leaving this page, holds the robot.",
    view_label: "3D view of the robot: solid as measured, transparent as commanded. Arrow keys turn, + and - zoom",
    no_webgl: "3D needs WebGL, which this browser does not offer. Everything else works.",
    no_scene: "There is no model of this robot here, so it can't be drawn.",
    no_gamepad: "No gamepad. Press a button on one to use it.",
    gamepad: "Gamepad: hold a shoulder button to engage; sticks, D-pad and triggers move the joints.",
    touch_label: "Two thumb sticks. A finger on a stick engages; lifting it holds the robot", stick_left: "Left stick", stick_right: "Right stick",
    touch_group: "Next joints on the sticks, now", xr_start: "Follow my hand in space", xr_end: "End", xr_clutch: "Hold to move",
    xr_on: "Hold the grip button, or the button here: the gripper follows your hand. The trigger closes it. B or Y stops the robot.",
    xr_lost: "Where your hand is can't be seen now: the robot holds.", xr_failed: "The headset or phone refused",
    engaged: "ENGAGED", released: "released: the robot holds", not_armed: "not armed: Arm first", others: "moves the robot here",
    not_live: "NOT LIVE", no_console: "no connection to the console", old_state: "the robot's state is old", not_read: "the robot was not read yet", read_at_times: "This robot is read only while it is reset and moved. Shown is what was read last.",
    drive: "drive", verdict: "verdict", r_operate: "operate", r_move: "move", r_watch: "watch", r_stop: "stop", goal_of_task: "Goal of the task", not_recorded: "not recorded", dropped: "dropped",
    not_sent: "STOP WAS NOT SENT: no connection. Use the robot's own stop button!", sending: "Stop …",
    asks_reset: "The robot asks: is the scene ready?", asks_verdict: "How did the episode go?", and_verdict: "Give a verdict first, if you like.",
    chosen: "verdict", holder: "Moved by", nobody: "nobody", reading: "Age of the newest reading", period: "Period", overruns: "Overruns",
    longest: "Longest period", periods: "periods", late: "Late commands", real_time: "Real time", recording: "Controller's log",
    held_back: "Held back by the guard", faults: "Faults", mover: "This console", here: "this console", recorded: "recorded", bad_token: "This token is not admitted.",
    lost_rights: "This token has lost its rights.", need_reason: "The robot is stopped: write what was found, and why it may move again.",
    idle: "idle", arming: "arming", armed: "armed", moving: "moving", judging: "waits for a verdict",
    s_disarmed: "disarmed", s_arming: "arming", s_resetting: "resetting", s_ready: "ready", s_running: "running", s_holding: "holding",
    s_stopped: "STOPPED", old: "old", measured: "age of this pose:",
    replay: "Replay a recorded episode", first: "Episode", second: "Beside it", back: "One frame back", next: "One frame on", play: "Play", pause: "Pause",
    speed: "Speed", to_live: "Back to live", at: "Place in the episode", live: "Live", none: "nothing", simulation: "its simulation", is_replay: "REPLAY, not live",
    loop: "From a robot to a better policy", step_robot: "Robot and task", step_calibrate: "Calibrate", step_record: "Record", step_train: "Train", step_run: "Run", step_judge: "Judge", step_retrain: "Retrain", step_compare: "Compare",
    robot_help: "Choose a robot and a task. The simulated one needs no hardware; it lags and sags as a real arm does.", model: "Robot", where: "Which one", task: "Task", choose: "Choose", end_server: "End its server",
    where_twin: "simulated, in real time", where_virtual: "virtual arm: simulated servos on a bus", where_port: "arm at", as_command: "As a command:", loop_folder: "Commands run in the folder",
    calibrate_help: "The torque goes off, and you move one joint after the other to both of its ends. A virtual arm does so itself. The robot's server ends first, since it has the port.",
    no_calibration: "This robot needs no calibration: go on with Record or Train.", restart: "sweep all joints anew", begin_calibration: "Begin the calibration", enter_done: "Done: go on", end_calibration: "Break it off",
    record_help: "Show the task: arm the robot, hold the space bar and move the joints with Q W E R T Y and A S D F G H, then say how it went. The green ball is the goal. Demonstrations are not needed to train, but they help to retrain.", arm_record: "Arm, and move it", recorded_episodes: "# episodes recorded since the console started",
    train_help: "Train in simulation; the robot itself does not move. The time left is shown after the first updates. Interrupt keeps what was learned, and Go on continues there.", method: "Method", m_evolution: "evolution", m_ppo: "PPO", new_name: "Name of the policy", budget: "Control steps (0: the default)", seed: "Seed", train: "Train", interrupt: "Interrupt", go_on: "Go on with the interrupted one",
    run_help: "The policy moves the robot for you: as when you move it yourself, the robot is armed first, Hold and Stop end it, and closing this page ends it after 5 s. A ready-made policy needs no training.", policy: "Policy", run_ask: "ask me for a verdict on each", ready_made: "ready-made",
    zoo_about: "Trained already. Successful episodes in simulation:", on_nominal: "nominal robot", on_twin: "identified robot", on_varied: "robots drawn from their range", run_policy: "Run the policy", run: "Run", episode: "episode",
    judge_help: "After each episode of yours you are asked how it went. Verdicts are recorded with the episode.", judge_none: "Nothing is to be judged now.",
    retrain_help: "Fit a model of the robot to the recorded episodes, and improve the policy in it. At least 5 episodes are needed.", policy_to_improve: "Policy to improve", retrain: "Retrain",
    results_help: "What each policy reached in the recorded episodes.", results_label: "Results by policy", count_again: "Count again", no_results: "No episode is recorded yet.", reached: "Reached", medians: "Medians at the end",
    blind: "The simulated robot can't be drawn here, so success and failure can't be judged. A browser with WebGL can.",
    colon: ": ", time_left: "about # left", s_unit: "s", min_unit: "min", now: "now", asked: "asked", by: "started by #", j_running: "runs", j_done: "done", j_stopped: "interrupted", j_failed: "FAILED", progress: "Progress", output: "Output", curve: "Learning curve, return or success", from_to: "from # to #",
    no_robot: "choose a robot", no_server: "the robot is not served", server_starts: "the robot's server starts", calibrating: "the arm is being calibrated", start: "Start", end: "End", enter: "Answer", your_name: "Your name", ok: "OK", policy_moves: "A policy moves the robot",
    compare: "Compare recorded episodes", begin: "Begin", left: "Left is better", right: "Right is better", equal: "Equally good", skip: "Can't say",
    compare_label: "Two recorded episodes. Focus here: arrow left and right choose the better one, arrow up says equally good, arrow down skips",
    compare_help: "Which one is better? With the focus here: ← left, → right, ↑ equally good, ↓ can't say.", left_one: "Left", right_one: "Right",
    no_pair: "No pair is left for you to judge.", not_drawn: "The two can't be drawn here, so they can't be compared. A browser with WebGL can.", prefer: "Preference", user: "Environment", assistant: "Agent",
  },
};
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
/** Texts that an event put, by their elements: functions, so that they are put anew when the language changes. */
const lasting = new Map();
/** Put a text into an element; a function that returns it where the text stays until the next event. */
const put = (element, text) => {
  if (typeof text === "function") lasting.set(element, text); else lasting.delete(element);
  const words = typeof text === "function" ? text() : text;
  if (element.textContent !== words) element.textContent = words;
};
const make = (tag, attributes = {}, ...children) => {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
};
const digits = (value, places = 3) => (value === null || value === undefined ? "–" : Number(value).toFixed(places));
/** Seconds for people: rounded to 5 s below two minutes, else to minutes. */
const duration = (seconds) => (seconds < 115 ? `${Math.max(5, 5 * Math.round(seconds / 5))} ${t("s_unit")}` : `${Math.round(seconds / 60)} ${t("min_unit")}`);
const millis = (seconds) => (seconds === null || seconds === undefined ? "–" : `${(seconds * 1e3).toFixed(0)} ms`);
