// Which build of this code is running.
#pragma once
#include <string>

namespace braze {

// The build-id note that the linker wrote into the binary that holds this function, as hexadecimal digits: a hash of
// all its content, so that two builds that differ in anything have different ones; then that of the extension, where it
// is another binary. Empty if there is no note.
const std::string& build_id();

// Tells which binary the extension is: the one that holds this address. To be called before anything asks for the id.
void add_to_build_id(const void* inside);

}  // namespace braze
