#pragma once

namespace braze {

// BRAZE_STRICT=1: a failure of ours is raised, so that nothing runs eagerly unnoticed.
bool strict();

}  // namespace braze
