// Which build of this code is running.
#pragma once
#include <string>

namespace braze {

// The build-id note that the linker wrote into the binary that holds this function, as hexadecimal digits: a hash of
// all its content, so that two builds that differ in anything have different ones. Empty if there is no note.
const std::string& build_id();

}  // namespace braze
