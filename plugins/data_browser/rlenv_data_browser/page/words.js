// The words of the page, in English and Chinese.

const WORDS = {
  en: {
    theme: "Theme", login: "Log in", token: "Token", enter: "Enter", bad_token: "This token is not admitted.", check: "Check quality", save: "Save selection",
    help: "Keys and commands", filters: "Filters", text: "Task or note contains", tag: "Tag", source: "Source", success: "Success", any: "any", yes: "yes", no: "no",
    unknown: "unknown", none: "none", discarded: "Discarded", with: "shown", without: "hidden", only: "only these", finding: "Finding", seconds: "Seconds", recorded: "Recorded",
    from: "from", to: "to", where: "Condition (SQL)", order: "Order", direction: "Direction", rising: "rising", falling: "falling", clear: "Clear filters",
    acts: "Label the chosen episodes", mark_success: "Success", mark_failure: "Failure", discard: "Discard", note: "Note", split: "Split here", undo: "Undo",
    grid: "Episodes", viewer: "One or two episodes", transport: "Playback", play: "Play", pause: "Pause", back: "One frame back", forth: "One frame on", time: "Time",
    speed: "Speed", close: "Close", ok: "OK", cancel: "Cancel", keys: "Keys", command: "The same by command", recorded_order: "as recorded",
    count: (n, all) => (n === all ? `${all} episodes` : `${n} of ${all} episodes`), chosen: (n) => `${n} chosen`, all_chosen: (n) => `all ${n} chosen`,
    empty: "No episode passes these filters.", no_episodes: "There are no episodes here.", columns: "Columns", computing: (group, done, total) => `Computing ${group}: ${done} of ${total}`,
    computed: (group) => `${group} is computed`, lost: "The server does not answer; retrying …", read_only: "Your token may look, not label.",
    said_label: (n, what) => `${n} × ${what}`, said_undo: (n) => `undone: ${n}`, nothing_undo: "nothing to undo", saved: (path, n) => `${n} episodes saved as ${path}`,
    ask_tag: "Tags to add, separated by commas; -word removes one", ask_note: "Note; replaces the present one", ask_save: "Name of the selection",
    ask_save_note: (n, cuts) => `${n} episodes${cuts ? `, ${cuts} of them split` : ""}. The data sets are not changed.`, no_images: "no cameras", measured: "measured", goal: "commanded", reward: "reward",
    frame: "frame", split_at: (frame) => `split before frame ${frame}`, unsplit: "split removed", split_first: "Open an episode, and move to the frame at which its second part begins.",
    beside: "choose a second episode: Shift or Space marks it", findings: "Findings", score: "score", discarded_now: "discarded", open: "Open",
    key_move: "move", key_range: "choose a range", key_mark: "choose or not", key_all: "choose all that pass the filters", key_open: "open", key_beside: "open the chosen one beside the present one",
    key_scrub: "move through the episode: all thumbnails", key_step: "one frame", key_episode: "previous, next episode", key_filter: "to the filters", key_help: "this help", key_close: "close, or choose none",
  },
  zh: {
    theme: "主题", login: "登录", token: "令牌", enter: "进入", bad_token: "该令牌无效。", check: "检查质量", save: "保存选集",
    help: "按键与命令", filters: "筛选", text: "任务或备注包含", tag: "标签", source: "来源", success: "成功", any: "不限", yes: "是", no: "否",
    unknown: "未知", none: "无", discarded: "已丢弃", with: "显示", without: "隐藏", only: "仅显示这些", finding: "检查发现", seconds: "时长（秒）", recorded: "记录日期",
    from: "从", to: "到", where: "条件（SQL）", order: "排序", direction: "方向", rising: "升序", falling: "降序", clear: "清除筛选",
    acts: "标注所选回合", mark_success: "成功", mark_failure: "失败", discard: "丢弃", note: "备注", split: "在此切分", undo: "撤销",
    grid: "回合", viewer: "一个或两个回合", transport: "播放", play: "播放", pause: "暂停", back: "后退一帧", forth: "前进一帧", time: "时间",
    speed: "速度", close: "关闭", ok: "确定", cancel: "取消", keys: "按键", command: "对应的命令", recorded_order: "记录顺序",
    count: (n, all) => (n === all ? `共 ${all} 个回合` : `${n} / ${all} 个回合`), chosen: (n) => `已选 ${n}`, all_chosen: (n) => `已全选 ${n}`,
    empty: "没有符合筛选条件的回合。", no_episodes: "这里没有回合。", columns: "列", computing: (group, done, total) => `正在计算 ${group}：${done} / ${total}`,
    computed: (group) => `${group} 已计算`, lost: "服务器无响应，正在重试 …", read_only: "您的令牌只能查看，不能标注。",
    said_label: (n, what) => `${n} × ${what}`, said_undo: (n) => `已撤销：${n}`, nothing_undo: "没有可撤销的操作", saved: (path, n) => `${n} 个回合已保存为 ${path}`,
    ask_tag: "要添加的标签，用逗号分隔；-标签 表示移除", ask_note: "备注；将替换现有备注", ask_save: "选集名称",
    ask_save_note: (n, cuts) => `${n} 个回合${cuts ? `，其中 ${cuts} 个被切分` : ""}。数据集不会被更改。`, no_images: "没有相机", measured: "测量值", goal: "指令值", reward: "奖励",
    frame: "帧", split_at: (frame) => `在第 ${frame} 帧前切分`, unsplit: "已移除切分", split_first: "打开一个回合，并移动到第二部分开始的那一帧。",
    beside: "请选择第二个回合：用 Shift 或空格标记", findings: "检查发现", score: "评分", discarded_now: "已丢弃", open: "打开",
    key_move: "移动", key_range: "选择一段", key_mark: "选择或取消", key_all: "选择所有符合筛选的回合", key_open: "打开", key_beside: "在旁边打开所选的回合",
    key_scrub: "在回合中移动：所有缩略图同步", key_step: "一帧", key_episode: "上一个、下一个回合", key_filter: "转到筛选", key_help: "此帮助", key_close: "关闭，或取消选择",
  },
};

export const store = {
  get: (key, area = localStorage) => { try { return area.getItem(key); } catch { return null; } },
  set: (key, value, area = localStorage) => { try { area.setItem(key, value); } catch { /* a private window */ } },
};
export let language = store.get("language") || ((navigator.language || "").toLowerCase().startsWith("zh") ? "zh" : "en");
export const $ = (id) => document.getElementById(id);
export const put = (element, text) => { if (element.textContent !== text) element.textContent = text; };
export function t(key, ...values) {
  const word = WORDS[language][key] ?? WORDS.en[key] ?? key;
  return typeof word === "function" ? word(...values) : word;
}
export function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}
export function translate(other = language) {
  language = other;
  store.set("language", other);
  document.documentElement.lang = language;
  for (const element of document.querySelectorAll("[data-t]")) put(element, t(element.dataset.t));
  for (const element of document.querySelectorAll("[data-a]")) element.setAttribute("aria-label", t(element.dataset.a));
  put($("language"), language === "en" ? "中文" : "English");
  $("language").lang = language === "en" ? "zh" : "en";
}
export function theme() {
  const dark = document.documentElement.dataset.theme ? document.documentElement.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  document.documentElement.dataset.theme = dark ? "light" : "dark";
  store.set("theme", document.documentElement.dataset.theme);
}
if (store.get("theme")) document.documentElement.dataset.theme = store.get("theme");
