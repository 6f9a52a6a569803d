// What an exception keeps alive by the frames of its traceback.
#pragma once

namespace braze::capture {

// Whether code of the program's runs as the exception that is set is let go of: the end of a generator that a called
// function left before it was through, a `__del__`.
bool raised_keeps_end();

}  // namespace braze::capture
