#pragma once

namespace braze {

// BRAZE_STRICT=1: a failure of ours is raised, so that nothing runs eagerly unnoticed.
bool strict();

// BRAZE_VERIFY=1: what is taken for granted elsewhere is checked: every IR between passes, every guard after each call.
bool verifying();

}  // namespace braze
