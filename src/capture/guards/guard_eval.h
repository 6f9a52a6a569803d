// One guard on one value. Shared by the guard program and its reports.
#pragma once
#include "capture/guards/guards.h"

namespace braze::capture {

std::vector<LooseRef> items_of(PyObject* tuple);
// Equality of constants as GuardKind::Equal means it.
bool equal_constants(PyObject* a, PyObject* b);
// Of a member of Guard::members: whether only the very same object will do.
bool is_compared_by_address(PyObject* member);
// `value`, `other`: nullptr when the source leads nowhere.
bool holds(const Guard& guard, PyObject* value, PyObject* other);
// The guard and what was found instead.
std::string describe_failure(const Guard& guard, const Sources& sources, PyObject* value);

}  // namespace braze::capture
