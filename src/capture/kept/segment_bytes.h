// What a capture found, as bytes and back in another process: guards by source, graph, recipe.
#pragma once
#include <optional>
#include <string>

#include "capture/eval/capture.h"
#include "capture/kept/objects.h"

namespace braze::capture {

// `calls`: with the region as calls of torch's functions, which one with a backward has anyhow. Throws NotKept for what
// holds in this process only.
std::string pack(const Segment& segment, const FrameView& frame, bool calls);
bool has_open_sizes(std::string_view packed);
// nullopt: it does not hold for this frame, as far as is seen at once; its guards are to be checked. Without a tracer.
// Throws InternalError for damaged bytes.
std::optional<Segment> unpack_segment(std::string_view bytes, const FrameView& frame);

}  // namespace braze::capture
