/* A tank with an outlet as an FMU of FMI 2.0 for co-simulation: area 2 m2, outflow 0.1 sqrt(level) m3/s. */
#include <math.h>
#include <stdlib.h>
typedef void *Tank;
typedef unsigned int Reference;
struct tank { double level, inflow, start; };
const char *fmi2GetTypesPlatform(void) { return "default"; }
const char *fmi2GetVersion(void) { return "2.0"; }
int fmi2SetDebugLogging(Tank t, int on, size_t n, const char **names) { return 0; }
static void begin(struct tank *t) { t->level = t->start = 1.0; t->inflow = 0.0; }
Tank fmi2Instantiate(const char *name, int kind, const char *guid, const char *where, const void *calls, int v, int l) {
    struct tank *t = malloc(sizeof *t);
    if (t) begin(t);
    return t;
}
void fmi2FreeInstance(Tank t) { free(t); }
int fmi2SetupExperiment(Tank t, int has, double tolerance, double from, int ends, double to) { return 0; }
int fmi2EnterInitializationMode(Tank t) { return 0; }
int fmi2ExitInitializationMode(Tank t) { return 0; }
int fmi2Terminate(Tank t) { return 0; }
int fmi2Reset(Tank t) { begin(t); return 0; }
int fmi2GetReal(Tank tank, const Reference *at, size_t n, double *value) {
    struct tank *t = tank;
    for (size_t i = 0; i < n; i++) value[i] = at[i] == 0 ? t->level : at[i] == 1 ? t->inflow : 0.1 * sqrt(t->level);
    return 0;
}
int fmi2SetReal(Tank tank, const Reference *at, size_t n, const double *value) {
    struct tank *t = tank;
    for (size_t i = 0; i < n; i++) *(at[i] == 0 ? &t->level : &t->inflow) = value[i];
    return 0;
}
int fmi2DoStep(Tank tank, double now, double step, int forget) {
    struct tank *t = tank;
    for (int i = 0; i < 100; i++) {
        t->level += step / 100 * (t->inflow - 0.1 * sqrt(t->level)) / 2.0;
        if (t->level < 0) t->level = 0;
        if (t->level > 10) t->level = 10;
    }
    return 0;
}
/* What this model does not need, and every FMU has to have. */
#define NOT_HERE(name) int name(void) { return 3; }
NOT_HERE(fmi2GetInteger) NOT_HERE(fmi2GetBoolean) NOT_HERE(fmi2GetString) NOT_HERE(fmi2SetInteger)
NOT_HERE(fmi2SetBoolean) NOT_HERE(fmi2SetString) NOT_HERE(fmi2GetFMUstate) NOT_HERE(fmi2SetFMUstate)
NOT_HERE(fmi2FreeFMUstate) NOT_HERE(fmi2SerializedFMUstateSize) NOT_HERE(fmi2SerializeFMUstate)
NOT_HERE(fmi2DeSerializeFMUstate) NOT_HERE(fmi2GetDirectionalDerivative) NOT_HERE(fmi2SetRealInputDerivatives)
NOT_HERE(fmi2GetRealOutputDerivatives) NOT_HERE(fmi2CancelStep) NOT_HERE(fmi2GetStatus) NOT_HERE(fmi2GetRealStatus)
NOT_HERE(fmi2GetIntegerStatus) NOT_HERE(fmi2GetBooleanStatus) NOT_HERE(fmi2GetStringStatus)
