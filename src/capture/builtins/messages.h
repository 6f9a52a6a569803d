// What the messages of a captured program (logging, warnings) have in common.
#pragma once
#include "capture/eval/variable.h"

namespace braze::capture {

// The object that a value stands for which was there before; nullptr: none is known.
PyObject* object_behind(Variable* v);

// Whether what the captured frames hold, or the globals that they see, is this object, has it as an attribute, or is a
// method of either: the code may look at what a message leaves there.
bool frames_lead_to(Translator& tr, PyObject* object);

}  // namespace braze::capture
