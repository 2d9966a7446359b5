#include "maintain/merge.h"

#include <algorithm>
#include <map>
#include <set>

#include "base/guard.h"
#include "codec/choose.h"
#include "codec/codec.h"
#include "codec/elements.h"
#include "format/layout.h"
#include "tensor/box.h"
#include "tensor/text.h"

namespace deltawire {
namespace {

bool is_absolute(CodecId codec) { return codec != CodecId::kTight && codec != CodecId::kAdaptive; }

// All entries of one box of a tensor, in the order of the hops.
struct BoxHistory {
  std::vector<const Delta::Entry*> entries;
};
// A tensor's boxes by their text; "-" is the whole.
using TensorHistory = std::map<std::string, BoxHistory>;

struct History {
  std::map<std::string, TensorHistory> tensors;
  std::set<std::string> gone;  // removed by the end
};

std::string box_key(const Box& box) { return box.whole() ? "-" : box_to_string(box); }

// What matters of each tensor: everything since it was last brought whole or removed.
History collect(std::span<const Delta> hops) {
  History history;
  for (const Delta& hop : hops) {
    for (const std::string& name : hop.info.removed) {
      history.tensors.erase(name);
      history.gone.insert(name);
    }
    for (const Delta::Entry& item : hop.entries) {
      if (!item.entry.old_digest) history.tensors.erase(item.entry.tensor);
      history.gone.erase(item.entry.tensor);
      history.tensors[item.entry.tensor][box_key(item.entry.box)].entries.push_back(&item);
    }
  }
  return history;
}

// Boxes that cover each other in part would have to be cut.
bool boxes_are_apart(const TensorHistory& boxes) {
  for (auto a = boxes.begin(); a != boxes.end(); ++a) {
    for (auto b = std::next(a); b != boxes.end(); ++b) {
      if (overlap(a->second.entries[0]->entry.box, b->second.entries[0]->entry.box)) return false;
    }
  }
  return true;
}

// Makes every element that the two arrays have in common differ from `values`, and every other the
// same: seen against the result, `values` has changed exactly where both agree.
void mark_agreeing(unsigned width, Bytes values, Bytes other, MutableBytes out, ThreadPool* pool) {
  constexpr size_t kPiece = size_t{1} << 16;
  const size_t n = values.size() / width;
  parallel_for(pool, (n + kPiece - 1) / kPiece, [&](size_t piece, unsigned) {
    with_element(width, [&]<class Element>(Element) {
      const size_t end = std::min(n, (piece + 1) * kPiece);
      for (size_t i = piece * kPiece; i < end; ++i) {
        const auto value = load_le<Element>(values.data() + i * sizeof(Element));
        const auto seen = load_le<Element>(other.data() + i * sizeof(Element));
        store_le(out.data() + i * sizeof(Element), Element(value == seen ? ~value : value));
      }
    });
  });
}

// Applied onto two arrays that differ everywhere, absolute changes leave them equal exactly where
// they wrote.
Status merge_box(const BoxHistory& history, ThreadPool* pool, PartStream* stream,
                 uint64_t* num_changed) {
  const DeltaEntry& first = history.entries.front()->entry;
  const DeltaEntry& last = history.entries.back()->entry;
  if (first.old_digest && *first.old_digest == last.new_digest) return {};  // it changed back
  DeltaEntry merged = last;
  merged.old_digest = first.old_digest;
  const Layout layout = layout_of(last.dtype);
  std::vector<uint8_t> zeros(last.box_bytes(), 0x00), ones(last.box_bytes(), 0xff);
  for (const Delta::Entry* item : history.entries) {
    const Codec& codec = *find_codec(item->entry.codec);
    DW_RETURN_IF_ERROR(codec.apply(layout, item->payload, zeros, pool).at(item->place));
    DW_RETURN_IF_ERROR(codec.apply(layout, item->payload, ones, pool).at(item->place));
  }
  Payload payload;
  if (zeros == ones) {  // all of it was written
    DW_ASSIGN_OR_RETURN(Choice whole, encode_whole_array(layout, zeros, false, pool));
    merged.codec = whole.codec;
    merged.num_changed = merged.num_elements();
    payload = Payload::own(std::move(whole.encoded.payload));
  } else {
    std::vector<uint8_t> before(zeros.size());
    mark_agreeing(layout.width, zeros, ones, before, pool);
    ones = {};
    DW_ASSIGN_OR_RETURN(Encoded encoded, gaps_codec().encode(layout, before, zeros, pool));
    merged.codec = CodecId::kGaps;
    merged.num_changed = encoded.num_changed;
    payload = Payload::own(std::move(encoded.payload));
  }
  *num_changed += merged.num_changed;
  return stream->add(std::move(merged), std::move(payload));
}

}  // namespace

bool carries_values(const std::string& name) {
  const Codec* codec = find_codec(name);
  return codec != nullptr && is_absolute(codec->id());
}

bool can_merge_alone(std::span<const Delta> hops) {
  for (const Delta& hop : hops) {
    for (const Delta::Entry& item : hop.entries) {
      if (!is_absolute(item.entry.codec)) return false;
    }
  }
  const History history = collect(hops);
  return std::all_of(history.tensors.begin(), history.tensors.end(),
                     [](const auto& tensor) { return boxes_are_apart(tensor.second); });
}

Result<MergeResult> merge_alone(std::span<const Delta> hops, const Schema& base, ThreadPool* pool,
                                PartStream* stream) {
  const History history = collect(hops);
  MergeResult result;
  for (const auto& [name, boxes] : history.tensors) {
    for (const auto& [key, box] : boxes) {
      DW_RETURN_IF_ERROR(guard_memory("merging", [&, &own = box]() -> Status {
                           return merge_box(own, pool, stream, &result.num_changed);
                         }).at("tensor " + quote(name)));
    }
  }
  for (const TensorSpec& tensor : base.tensors) {
    if (history.gone.contains(tensor.name)) result.removed.push_back(tensor.name);
  }
  return result;
}

}  // namespace deltawire
