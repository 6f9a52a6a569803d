// Loads, stores and bound indices.
#include <algorithm>

#include "codegen/triton/printer.h"
#include "loop/value_range.h"

namespace braze::codegen::triton {

using loop::BufferKind;

void Printer::emit_load(const LoopOp& op) {
  const loop::Buffer& buffer = program_.buffers[op.buffer];
  Key key{op.buffer.index, op.index.id};
  auto found = known_.find(key);
  if (found == known_.end() || found->second.dims & ~all_dims()) {
    if (buffer.kind == BufferKind::Local) throw Inexpressible("a private row that no value stands for");
    Text at = index(op.index);
    // Numbers have the dimensions of tensors, too.
    if (!at.dims && prefix_.empty()) at = {spread(at, blocks_.way == Blocks::Way::Points ? "[1]" : "[1, 1]"), 0, false};
    std::string m = mask(at.dims),
                text = "tl.load(" + address(op.buffer, at) + (m.empty() ? ")" : ", " + m + ", other=0)");
    if (compute_type(buffer.dtype) != storage_type(buffer.dtype)) text += ".to(" + compute_type(buffer.dtype) + ")";
    Val v{assign("v" + std::to_string(op.result.index), text), at.dims, buffer.dtype};
    found = known_.insert_or_assign(key, std::move(v)).first;
  }
  Val& out = values_[op.result.index];
  out = {cast(found->second, op.dtype), found->second.dims, op.dtype};
}

void Printer::emit_store(const LoopOp& op) {
  const loop::Buffer& buffer = program_.buffers[op.buffer];
  const Val& x = values_[op.args[0].index];
  std::string value = cast(x, buffer.dtype);
  std::erase_if(known_, [&](auto& entry) { return entry.first.first == op.buffer.index; });
  if (!op.atomic_add) {
    // What a load would find: rounded to 16 bits.
    std::string rounded = value;
    if (x.dtype == buffer.dtype && compute_type(buffer.dtype) != storage_type(buffer.dtype))
      rounded += ".to(" + storage_type(buffer.dtype) + ").to(tl.float32)";
    known_[{op.buffer.index, op.index.id}] = {rounded, x.dims, buffer.dtype};
  }
  if (buffer.kind == BufferKind::Local) {
    if (op.atomic_add) throw Inexpressible("additions into a private row");
    return;
  }
  written_.push_back(op.buffer);
  Text at = index(op.index);
  // The address has all dimensions that the stage has: each element is stored, or added, by itself.
  Text all{at.dims ? whole(at) : spread(at, shape()), all_dims(), at.dims == all_dims() && at.atom};
  std::string m = mask(all_dims());
  if (!op.atomic_add) {
    line("tl.store(" + address(op.buffer, all) + ", " + value + (m.empty() ? ")" : ", " + m + ")"));
    return;
  }
  bool known = buffer.dtype == DType::F32 || buffer.dtype == DType::F64 || buffer.dtype == DType::F16 ||
               buffer.dtype == DType::I32 || buffer.dtype == DType::I64 || (buffer.dtype == DType::BF16 && sm_ >= 90);
  if (!known) throw Inexpressible("atomic additions of " + std::string(name(buffer.dtype)));
  std::string stored = value;
  if (x.dims != all_dims()) stored = "(" + value + " + tl.zeros(" + shape() + ", " + compute_type(buffer.dtype) + "))";
  if (compute_type(buffer.dtype) != storage_type(buffer.dtype)) stored += ".to(" + storage_type(buffer.dtype) + ")";
  line("tl.atomic_add(" + address(op.buffer, all) + ", " + stored + (m.empty() ? "" : ", mask=" + m) +
       ", sem=\"relaxed\")");
}

// Binds an index that was loaded; what is out of range is reported and reads element 0.
void Printer::emit_indirect(const LoopOp& op) {
  const Val& x = values_[op.args[0].index];
  Text bound = index(op.bound);
  std::string n = bound.atom ? bound.s : "(" + bound.s + ")";
  std::string name = "i" + std::to_string(op.args[0].index);
  if (loop::is_inside(program_, nest_, op)) {
    symbols_[op.index.id] = {assign(name, x.s + (wide_ ? ".to(tl.int64)" : ".to(tl.int32)")), x.dims};
    std::erase_if(known_, [&](auto& entry) { return arena_.contains(Expr{entry.first.second}, op.index); });
    return;
  }
  std::string at = assign(name, x.s + ".to(tl.int64)");
  if (op.check.wrap) at = assign(name, "tl.where(" + at + " < 0, " + at + " + " + n + ", " + at + ")");
  std::string bad = assign("bad", "(" + at + " < 0) | (" + at + " >= " + n + ")");
  std::string m = mask(x.dims);
  line("tl.store(error + " + at + " * 0, 1, " + bad + (m.empty() ? ")" : " & " + m + ")"));
  at = assign(name, "tl.where(" + bad + ", 0, " + at + ")" + (wide_ ? "" : ".to(tl.int32)"));
  symbols_[op.index.id] = {at, x.dims | bound.dims};
  std::erase_if(known_, [&](auto& entry) { return arena_.contains(Expr{entry.first.second}, op.index); });
}

}  // namespace braze::codegen::triton
