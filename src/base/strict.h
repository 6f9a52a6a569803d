#pragma once

namespace braze {

// Of an environment variable: neither empty nor "0".
bool is_set(const char* variable);

// BRAZE_STRICT=1: a failure of ours is raised, so that nothing runs eagerly unnoticed.
bool strict();

// BRAZE_VERIFY=1, and builds without optimisation: what a stage made is verified before the next one takes it, and
// guards that a check found to hold are evaluated afresh. Read once.
bool verifying();

}  // namespace braze
