/* Three sleds that are pushed: an environment of T/CCF 0002-2025, written from docs/conformance.md. An episode has 20
 * frames. `sleds` is correct; with the name of a style or a fault it is the one of that name in frame_faults.py,
 * seed_faults.py, refusal_faults.py, end_faults.py or good_ones.py.     cc -O1 -o sleds sleds.c -lm
 */
#include "json.h"
#include <time.h>
#include <unistd.h>

static const char *kind = "Sleds";
static char env_id[37];
static const char *phase = "new";
static long frame_no, start;
static int seeded;
static double position[3], velocity[3], first_position[3], first_velocity[3], wind;
static unsigned long long state;

static const char *description =
    "\"calls\":[\"describe\",\"reset\",\"step\",\"render\",\"close\"],"
    "\"observation\":{\"name\":\"sled_observation\",\"fields\":["
    "{\"name\":\"position\",\"shape\":[3],\"dtype\":\"float32\",\"low\":-50,\"high\":50,\"unit\":\"m\","
    "\"meaning\":\"where the sleds are\"},"
    "{\"name\":\"velocity\",\"shape\":[3],\"dtype\":\"float32\",\"low\":-5,\"high\":5,\"unit\":\"m/s\","
    "\"meaning\":\"how fast they are\"},"
    "{\"name\":\"left\",\"shape\":[],\"dtype\":\"int32\",\"low\":0,\"high\":20,\"unit\":\"1\","
    "\"meaning\":\"frames until the end\"}]},"
    "\"action\":{\"name\":\"sled_action\",\"fields\":["
    "{\"name\":\"force\",\"shape\":[3],\"dtype\":\"float32\",\"low\":-1,\"high\":1,\"unit\":\"N\",\"meaning\":\"on each sled\"},"
    "{\"name\":\"gear\",\"shape\":[],\"dtype\":\"int8\",\"low\":0,\"high\":2,\"unit\":\"1\",\"meaning\":\"multiplies\"}]},"
    "\"reward\":{\"name\":\"reward\",\"shape\":[],\"dtype\":\"float64\",\"low\":-40,\"high\":0,\"unit\":\"m/s\","
    "\"meaning\":\"minus the speed\"},"
    "\"reset_options\":{\"seed\":\"whole number from 0: fixes the episode\"}";

static int is(const char *name) { return !strcmp(kind, name); }
static int is_pair(void) { return is("Pair") || is("NoMapping"); }
static int in_phase(const char *name) { return !strcmp(phase, name); }
static double clip(double value, double low, double high) { return value < low ? low : value > high ? high : value; }

/* -- tables ------------------------------------------------------------------------------------------------------- */

typedef struct { const char *code, *field; int index; } Problem;

static void observation(int terminated, int truncated, const Problem *problem) {
    int shows_first = is("LastFrameIsTheNextFirst") && truncated;
    double missing[3] = {NAN, NAN, NAN}, heat[3];
    for (int i = 0; i < 3; i++) heat[i] = fabs(velocity[i]);
    printf("\"observation\":{\"env_id\":\"%s", env_id);
    if (is("EnvIdChanges")) printf("-%s", phase);
    printf("\",\"frame_no\":%ld,\"observation\":{", frame_no);
    numbers("position", shows_first ? first_position : position, 3);
    putchar(',');
    numbers("velocity", shows_first ? first_velocity : is("NanLate") && frame_no == 17 ? missing : velocity, 3);
    if (!(is("FieldMissingLate") && frame_no == 20)) printf(",\"left\":%ld", shows_first ? 20 : 20 - (frame_no - start));
    printf("},\"extra_info\":{");
    numbers("heat", heat, 3);
    if (is("Pair"))
        printf(",\"agents\":{\"left\":{\"own\":\"position\",\"left\":\"left\"},"
               "\"right\":{\"own\":\"velocity\",\"left\":\"left\"}}");
    if (problem && is("UpperBorderIsRefused")) printf(",\"error\":\"%s\"", problem->code);
    else if (problem) {
        printf(",\"error\":{\"code\":\"%s\",\"field\":\"%s\",\"index\":[", problem->code, problem->field);
        if (problem->index >= 0) printf("%d", problem->index);
        printf("],\"message\":\"%s: %s\"}", *problem->field ? problem->field : "the table", problem->code);
    }
    printf("},\"terminated\":%d,\"truncated\":%d}", terminated, truncated);
}

static void reward(int earned) {
    printf(",\"reward\":{\"env_id\":\"%s\",\"frame_no\":%ld,\"reward\":", env_id, frame_no);
    if (is_pair()) {
        printf("{\"left\":");
        number(earned ? -fabs(velocity[0]) : 0);
        printf(",\"right\":");
        number(earned ? -fabs(velocity[1]) : 0);
        printf("}}");
    } else {
        number(earned ? -(fabs(velocity[0]) + fabs(velocity[1]) + fabs(velocity[2])) : 0);
        putchar('}');
    }
}

/* -- calls -------------------------------------------------------------------------------------------------------- */

static void reset(const Value *options) {
    if (in_phase("closed")) { error_answer("state", "it is closed"); return; }
    const Value *seed = NULL; /* taken once all options are known to be right */
    for (const Value *option = options ? options->first : NULL; option; option = option->next) {
        if (strcmp(option->key, "seed")) { error_answer("option", "an option is unknown, allowed is seed"); return; }
        if (!is_whole(option) || option->number < 0) { error_answer("option", "seed is a whole number from 0"); return; }
        seed = option;
    }
    if (seed) {
        if (!(is("SeedCountsOnce") && seeded)) state = is("AllSeedsAreOne") ? 7 : (unsigned long long)seed->number;
        seeded = 1;
    }
    phase = "running";
    start = is("FramesGoOn") ? frame_no : 0;
    frame_no = start;
    for (int i = 0; i < 3; i++) {
        first_position[i] = position[i] = (float)normal(&state);
        first_velocity[i] = velocity[i] = 0;
    }
    observation(0, 0, NULL);
}

static int in_range(const Value *value, double low, double high) {
    return value->type == J_NUMBER && value->number >= low && value->number <= high;
}

/* What is wrong with a Table 2; a problem without a code if nothing is. */
static Problem wrong(const Value *action) {
    const Value *values = get(action, "action"), *force = get(values, "force"), *gear = get(values, "gear");
    const Value *frame = get(action, "frame_no"), *name = get(action, "env_id");
    if (!action || action->type != J_OBJECT) return (Problem){"dtype", "", -1};
    if (action->count != 3 || !values || !frame || !name) return (Problem){"missing", "", -1};
    if (!is_text(name, env_id) && !is("EnvIdChanges")) return (Problem){"env_id", "env_id", -1};
    if (!is_whole(frame) || frame->number != frame_no) return (Problem){"frame_no", "frame_no", -1};
    if (values->type != J_OBJECT || values->count != 2 || !force || !gear) return (Problem){"missing", "action", -1};
    if (force->type != J_LIST || force->count != 3) return (Problem){"shape", "action.force", -1};
    if (is("LateActionsAreNotChecked") && frame_no > 9) return (Problem){NULL, "", -1};
    for (int i = 0; i < 3; i++) {
        if (is("MiddleElementIsNotChecked") && i == 1 && item(force, 1)->type == J_NUMBER) continue;
        int at_border = is("UpperBorderIsRefused") && item(force, i)->number >= 1;
        if (at_border || !in_range(item(force, i), -1, 1)) return (Problem){"range", "action.force", i};
    }
    if (!is_whole(gear) || !in_range(gear, 0, 2)) return (Problem){"range", "action.gear", -1};
    return (Problem){NULL, "", -1};
}

static void step(const Value *action) {
    if (in_phase("ended") && is("StepsOnAfterTheEnd")) phase = "running";
    if (!in_phase("running")) { error_answer("state", "the episode is not running"); return; }
    Problem problem = wrong(action);
    if (problem.code) {
        if (is("IllegalActionsDraw") && frame_no > 4) normal(&state);
        observation(0, 0, &problem);
        reward(0);
        return;
    }
    const Value *force = get(get(action, "action"), "force"), *gear = get(get(action, "action"), "gear");
    int ignores = is("IgnoresActions");
    for (int i = 0; i < 3; i++) {
        double push = ignores ? 0 : (float)item(force, i)->number;
        double speed = velocity[i] + 0.1 * push * (ignores ? 1 : gear->number + 1) + 0.01 * normal(&state);
        if (is("HiddenStateSurvivesTheReset")) speed += (wind += 0.003) * 0.01;
        velocity[i] = (float)clip(speed, -5, 5);
        position[i] = (float)clip(position[i] + 0.1 * velocity[i], -50, 50);
    }
    frame_no++;
    int truncated = frame_no - start >= 20;
    if (truncated) phase = "ended";
    observation(0, truncated, NULL);
    reward(1);
}

static void render(void) {
    if (in_phase("closed")) { error_answer("state", "it is closed"); return; }
    if (is("RenderingMoves"))
        for (int i = 0; i < 3; i++) position[i] = (float)(position[i] + 0.01);
    printf("\"frame\":{\"env_id\":\"%s\",\"frame_no\":%ld,\"frame_data\":\"%.2f %.2f %.2f\"}", env_id, frame_no,
           position[0], position[1], position[2]);
}

static void answer(char *line) {
    const Value *request = read_line(line), *id = get(request, "id"), *call = get(request, "call");
    putchar('{');
    if (is_whole(id)) printf("\"id\":%.0f,", id->number);
    if (is_text(call, "describe")) printf("\"env_id\":\"%s\",%s", env_id, description);
    else if (is_text(call, "reset")) reset(get(request, "options"));
    else if (is_text(call, "step")) step(get(request, "action"));
    else if (is_text(call, "render")) render();
    else if (is_text(call, "close") && in_phase("closed") && is("SecondCloseFails")) error_answer("fault", "closed");
    else if (is_text(call, "close")) {
        phase = "closed";
        printf("\"closed\":true");
    } else error_answer("request", "it is not JSON, or the call is unknown");
    printf("}\n");
    fflush(stdout);
}

int main(int count, char **words) {
    char *line = NULL;
    size_t size = 0;
    if (count > 1) kind = words[1];
    snprintf(env_id, sizeof env_id, "sleds-%ld", (long)getpid());
    state = (unsigned long long)time(NULL) ^ (unsigned long long)getpid();
    while (getline(&line, &size, stdin) > 0) answer(line);
    free(line);
    return 0;
}
