#include "shard/decode.h"

#include <algorithm>

#include "base/guard.h"
#include "codec/changes.h"
#include "codec/codec.h"
#include "format/layout.h"
#include "shard/encode.h"
#include "tensor/text.h"

namespace deltawire::shard {
namespace {

struct Record {
  const InEdge* edge = nullptr;
  RecordHead head;
  Bytes payload;
};

std::string trainer_words(const InEdge& edge) {
  return "trainer rank " + std::to_string(edge.edge->trainer);
}

Status read_records(Arrived* arrived, std::vector<Record>* records) {
  InEdge& edge = *arrived->edge;
  const auto bad = [&](const char* why) {
    return corruption(trainer_words(edge) + ", round " + std::to_string(arrived->head.round) +
                      ": " + why);
  };
  if (body_checksum(arrived->body) != arrived->head.checksum) return bad("wrong checksum");
  Bytes left = arrived->body;
  for (uint64_t i = 0; i < arrived->head.num_records; ++i) {
    if (left.size() < RecordHead::kBytes) return bad("it ends inside a record");
    const RecordHead head = parse_record_head(left.first(RecordHead::kBytes));
    left = left.subspan(RecordHead::kBytes);
    if (head.payload_bytes > left.size()) return bad("a payload is longer than what came");
    if (head.item < edge.next || head.item >= edge.items.size()) {
      return bad("a record is for no box of the plan");
    }
    records->push_back({&edge, head, left.first(head.payload_bytes)});
    left = left.subspan(head.payload_bytes);
    edge.next = head.item + 1;
    ++edge.num_records;
  }
  if (!left.empty()) return bad("bytes behind its records");
  if (arrived->head.last && edge.whole && edge.num_records != edge.items.size()) {
    return bad("a box of a whole version did not come");
  }
  return {};
}

const Codec* codec_of(const RecordHead& head) {
  const auto end = std::find(head.codec.begin(), head.codec.end(), '\0');
  return find_codec(std::string_view(head.codec.data(), size_t(end - head.codec.begin())));
}

Status decode_record(const ShardPlan& plan, const ReadShard& read, const Record& record,
                     StagedShard* staged) {
  const Item& item = record.edge->items[record.head.item];
  const ShardTensor& tensor = plan.tensors[item.tensor];
  const std::string place = trainer_words(*record.edge) + ", tensor " + quote(tensor.name);
  const Codec* const codec = codec_of(record.head);
  if (codec == nullptr) return corruption(place + ": a codec that is not known");
  const Layout layout = layout_of(tensor.dtype);
  staged->tensor = item.tensor;
  staged->box = item.box;
  std::vector<uint8_t> contents(item.size_bytes);
  if (record.edge->whole) {
    if (codec->id() != CodecId::kRaw && codec->id() != CodecId::kExponents) {
      return corruption(place + ": " + std::string(codec->name()) + " is for changes");
    }
    DW_RETURN_IF_ERROR(codec->apply(layout, record.payload, contents, nullptr).at(place));
    staged->whole = true;
  } else {
    DW_RETURN_IF_ERROR(read(tensor, item.box, contents).at(place));
    auto changes = codec->decode(layout, record.payload, contents, nullptr);
    if (!changes.ok()) return std::move(changes).status().at(place);
    DW_RETURN_IF_ERROR(scatter_changes(layout.width, *changes, contents, nullptr).at(place));
    const uint64_t listed = changes->positions.size() * (sizeof(uint64_t) + layout.width);
    staged->whole = listed >= contents.size();
    staged->positions = std::move(changes->positions);
    staged->values = std::move(changes->values);
  }
  Digest expected = digest_of(DigestKind::kSum128, contents);
  if (!std::equal(record.head.digest.begin(), record.head.digest.end(), expected.bytes.begin())) {
    return base_mismatch(place + ": not what was sent, after the change: sum128 " + expected.hex() +
                         "; what is held is not the version before");
  }
  if (staged->whole) {
    staged->positions = {};
    staged->values = std::move(contents);
  }
  return {};
}

}  // namespace

Status decode_round(const ShardPlan& plan, const ReadShard& read, std::span<Arrived> round,
                    ThreadPool* pool, std::vector<StagedShard>* staged) {
  return guard_memory("decoding", [&]() -> Status {
    std::vector<Record> records;
    for (Arrived& arrived : round) DW_RETURN_IF_ERROR(read_records(&arrived, &records));
    const size_t before = staged->size();
    staged->resize(before + records.size());
    return parallel_try("decoding", pool, records.size(), [&](size_t i, unsigned) -> Status {
      return decode_record(plan, read, records[i], &(*staged)[before + i]);
    });
  });
}

}  // namespace deltawire::shard
