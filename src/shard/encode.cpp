#include "shard/encode.h"

#include <algorithm>
#include <cstring>

#include "base/guard.h"
#include "codec/choose.h"
#include "digest/parallel.h"
#include "format/layout.h"
#include "tensor/text.h"

namespace deltawire::shard {
namespace {

struct Coded {
  OutEdge* edge = nullptr;
  size_t item = 0;
  bool is_sent = false;
  std::optional<Digest> digest;  // of contents that are sent, or are not the snapshot's
  bool is_new = false;           // not the snapshot's
  Choice choice;
};

Status encode_item(const ShardPlan& plan, const ReadShard& read, const Snapshot& snapshot,
                   Coded* coded) {
  const Item& item = coded->edge->items[coded->item];
  const ShardTensor& tensor = plan.tensors[item.tensor];
  const std::string place = "tensor " + quote(tensor.name);
  std::vector<uint8_t> contents(item.size_bytes);
  DW_RETURN_IF_ERROR(read(tensor, item.box, contents).at(place));
  const Layout layout = layout_of(tensor.dtype);
  const auto differ = [&](Bytes old) {
    return std::memcmp(old.data(), contents.data(), contents.size()) != 0;
  };
  coded->is_new = snapshot.is_empty() || differ(snapshot.contents(coded->edge->number, item));
  if (coded->edge->whole) {
    coded->is_sent = true;
    DW_ASSIGN_OR_RETURN(coded->choice, encode_whole_array(layout, contents, false, nullptr));
  } else {
    // What the receiver holds may be older than the snapshot.
    std::vector<uint8_t> room;
    const Bytes old =
        snapshot.contents_in(coded->edge->base, coded->edge->number, item, layout.width, &room);
    coded->is_sent = differ(old);
    if (coded->is_sent) {
      DW_ASSIGN_OR_RETURN(coded->choice, encode_smallest(layout, old, contents, nullptr));
    }
  }
  if (coded->is_sent || coded->is_new) coded->digest = digest_of(DigestKind::kSum128, contents);
  return {};
}

void append_record(const Coded& coded) {
  RecordHead head;
  head.item = coded.item;
  head.num_changed = coded.choice.encoded.num_changed;
  head.payload_bytes = coded.choice.encoded.payload.size();
  const std::string_view codec = find_codec(coded.choice.codec)->name();
  std::copy_n(codec.begin(), std::min(codec.size(), head.codec.size()), head.codec.begin());
  std::copy_n(coded.digest->bytes.begin(), head.digest.size(), head.digest.begin());
  std::vector<uint8_t>& body = coded.edge->body;
  append(head, &body);
  body.insert(body.end(), coded.choice.encoded.payload.begin(), coded.choice.encoded.payload.end());
  ++coded.edge->head.num_records;
}

// The items of the next round.
std::vector<Coded> take_items(std::span<OutEdge> edges) {
  std::vector<Coded> taken;
  for (OutEdge& edge : edges) {
    uint64_t bytes = 0;
    for (; edge.next < edge.items.size(); ++edge.next) {
      const uint64_t size = edge.items[edge.next].size_bytes;
      if (bytes > 0 && bytes + size > edge.round_bytes) break;
      bytes += size;
      taken.push_back({&edge, edge.next, false, {}, false, {}});
    }
  }
  return taken;
}

}  // namespace

uint64_t body_checksum(Bytes body) {
  return load_le<uint64_t>(digest_of(DigestKind::kXxh3_128, body).bytes.data());
}

Status encode_round(const ShardPlan& plan, const ReadShard& read, Snapshot* snapshot,
                    std::span<OutEdge> edges, uint64_t round, ThreadPool* pool,
                    EncodeReport* report) {
  return guard_memory("encoding", [&]() -> Status {
    for (OutEdge& edge : edges) {
      edge.head = {};
      edge.head.round = round;
      edge.body.clear();
    }
    std::vector<Coded> taken = take_items(edges);
    DW_RETURN_IF_ERROR(
        parallel_try("encoding", pool, taken.size(), [&](size_t i, unsigned) -> Status {
          return encode_item(plan, read, *snapshot, &taken[i]);
        }));
    for (Coded& coded : taken) {
      const Item& item = coded.edge->items[coded.item];
      report->contents_bytes += item.size_bytes;
      snapshot->note(coded.edge->number, item, coded.is_new ? coded.digest : std::nullopt);
      if (!coded.is_sent) continue;
      report->num_changed += coded.choice.encoded.num_changed;
      append_record(coded);
      coded.choice = {};
    }
    for (OutEdge& edge : edges) {
      edge.head.body_bytes = edge.body.size();
      edge.head.checksum = body_checksum(edge.body);
      edge.head.last = edge.next == edge.items.size();
    }
    return {};
  });
}

}  // namespace deltawire::shard
