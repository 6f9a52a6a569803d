// Tables of functions name modules that a process may never import. They are not imported for a table's sake: what
// belongs to them is entered when they come; code that is captured cannot call it before.
#pragma once
#include <functional>

namespace braze::capture {

// Runs `then` now if the module is imported, else at the first register_loaded() after it was. `module` must live for
// ever.
void once_loaded(const char* module, std::function<void()> then);
// To be called before a table is asked about a callable; cheap where no module came.
void register_loaded();

}  // namespace braze::capture
