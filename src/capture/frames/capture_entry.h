// From a frame to an entry: the segment that begins there captured, its guards and its graph compiled.
#pragma once
#include "capture/frames/region.h"

namespace braze::capture {

// Captures the frame and puts the entry where calls find it. `values`: receives what its guards fetch. None: an
// exception is set, or the frame is to run uncompiled (never with fullgraph=True).
GilPtr<Entry> capture_entry(Region& region, const GilPtr<Place>& place, const FrameView& view, GuardValues& values);

// Captures the frame only to learn which sizes it has, for the next capture.
void note_sizes(Region& region, Place& place, const FrameView& view);

enum class GraphOutcome { Ready, CaptureAgain, Raised };
// Makes the entry's `runnable` or `callable` of the segment's graph. CaptureAgain: as `again` says now. Raised: a
// Python exception is set. Throws InternalError where no graph is to run uncompiled.
GraphOutcome compile_graph(Region& region, Entry& entry, Segment& segment, const GuardValues& values,
                           const UserLine& at, Event& event, FrameView& again);

// Where a frame begins.
inline UserLine first_line(const FrameView& view) {
  return {view.bytecode->code, view.bytecode->instructions[view.start].line};
}

}  // namespace braze::capture
