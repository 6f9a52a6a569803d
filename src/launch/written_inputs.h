// Whether a run of compiled code on this thread has changed its inputs before its end (schedule/call_in_place.h): one
// that fails after that is not made again. No torch header.
#pragma once

namespace braze::launch {

// What it was before.
bool note_inputs_written(bool yes);

}  // namespace braze::launch
