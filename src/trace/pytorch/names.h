// The one door to what PyTorch keeps for itself in Python: a table of names (names.def), each looked up when the
// extension loads, and of attributes of its objects (attributes.def). What this PyTorch lacks is a sentence at import
// or a named reason where a program needs it, never a null pointer.
#pragma once
#include <Python.h>

#include <cstdint>
#include <string>
#include <vector>

namespace braze::pytorch {

enum class Name : uint16_t {
#define BRAZE_PYTORCH_NAME(name, module, path, need) name,
#include "trace/pytorch/names.def"
#undef BRAZE_PYTORCH_NAME
};

enum class Need : uint8_t { Needed, Feature, Handled, OfCuda };  // OfCuda: as Handled, in builds for CUDA

struct NameRow {
  const char *name, *module, *path;  // as texts; path: "" is the module itself
  Need need;
};
const NameRow& row(Name name);

// The object, borrowed from the process, which keeps it. Imports its module. Where it lacks: throws Unsupported, with
// its name. Needs the GIL.
PyObject* get(Name name);
PyTypeObject* get_type(Name name);
// What the name stands for at the moment, a new reference; nullptr, without an exception, where its module is not
// imported, which this does not do. For what PyTorch replaces as it runs. Needs the GIL.
PyObject* loaded(Name name);

enum class Attribute : uint8_t {
#define BRAZE_PYTORCH_ATTRIBUTE(name, text, holder) name,
#include "trace/pytorch/attributes.def"
#undef BRAZE_PYTORCH_ATTRIBUTE
};
const char* text(Attribute attribute);
PyObject* interned(Attribute attribute);  // borrowed; never freed

// What this PyTorch lacks of the two tables, as `torch._C._name`. Modules that nobody imported are left out.
std::vector<std::string> lacking();

// To be called when the extension loads. Throws std::runtime_error, a sentence with the remedy, where a name that every
// capture needs or an attribute lacks. (That the version is the one which the extension was built for is asked before
// it is loaded, in python/braze/__init__.py.)
void check();

}  // namespace braze::pytorch
