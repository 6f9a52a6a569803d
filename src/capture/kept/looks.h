// By what one process knows an object of another: its name, and what is seen of it.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "capture/cpython/ref.h"

namespace braze::capture {

// A hash of all that a code object does and says: instructions, constants, names, lines. The same in every process.
uint64_t content_of_code(PyCodeObject* code);

// By what an object is known: where these are the same, what capture may take for granted of it is.
struct Looks {
  std::string text;
  std::vector<PyObject*> parts;  // borrowed; nullptr: none
};
// nullopt: of a class of which too little is known.
std::optional<Looks> looks_of(PyObject* object);

// "module\npath" ("{}": the module's dict), where a walk through the attributes of loaded modules leads to the object;
// else empty.
std::string name_of(PyObject* object);
// What that leads to, borrowed, or nullptr. Runs no code.
PyObject* at_name(const std::string& name);

// Of functions, lambdas, comprehensions and classes in a code object; borrowed.
std::vector<PyObject*> inner_codes(PyObject* code);
// Of a str, else empty.
std::string_view text_of(PyObject* text);
// Bytes as far as they are text.
std::string printable(const std::string& bytes);

}  // namespace braze::capture
