#include "live/margins.h"

#include <algorithm>
#include <optional>

#include "live/slices.h"
#include "tensor/box.h"
#include "tensor/box_math.h"

namespace deltawire {
namespace {

// Makes a range whole blocks of `unit`, counted from the begin of the entry's box.
void widen(const Box& entry, size_t d, uint64_t unit, Box* box) {
  const uint64_t first = box->offset[d] - entry.offset[d], last = first + box->extent[d];
  const uint64_t begin = first / unit * unit,
                 end = std::min((last + unit - 1) / unit * unit, entry.extent[d]);
  box->offset[d] = entry.offset[d] + begin;
  box->extent[d] = end - begin;
}

}  // namespace

std::vector<Box> missing_boxes(std::span<const Delta> deltas, const HeldBoxes& held) {
  std::vector<Box> here, missing;
  for (const LocalBox& box : held.boxes) here.push_back(spelled_out(box.box, held.shape));
  const size_t own = here.size(), dims = held.shape.size();
  for (size_t i = deltas.size(); i-- > 0;) {
    bool changed = false;
    for (const Delta::Entry& item : deltas[i].entries) {
      if (item.entry.tensor != held.name || item.entry.shape != held.shape) continue;
      const CodecId codec = item.entry.codec;
      if (codec != CodecId::kTight && codec != CodecId::kAdaptive) continue;  // needs no old values
      changed = true;
      const Box entry = spelled_out(item.entry.box, held.shape);
      const auto tile = tile_of(item);
      for (size_t k = 0; k < own; ++k) {
        if (!overlap(here[k], entry)) continue;
        Box wanted = entry;
        if (tile && dims >= 2) {
          wanted = intersection(here[k], entry);
          widen(entry, dims - 2, tile->rows, &wanted);
          widen(entry, dims - 1, tile->columns, &wanted);
        }
        std::vector<Box> left = {std::move(wanted)};
        for (const Box& known : here) {
          std::vector<Box> next;
          for (const Box& box : left) {
            if (overlap(box, known)) {
              add_rest(box, intersection(box, known), &next);
            } else {
              next.push_back(box);
            }
          }
          left = std::move(next);
        }
        here.insert(here.end(), left.begin(), left.end());
        missing.insert(missing.end(), left.begin(), left.end());
      }
    }
    if (changed) break;
  }
  return missing;
}

}  // namespace deltawire
