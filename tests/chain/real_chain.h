// Small chains with weights behind them: every record and part as a publisher would put it.
#pragma once

#include "base/bytes.h"
#include "chain/chain.h"
#include "chain/hop_records.h"
#include "chain/named_objects.h"
#include "chain/names.h"
#include "chain/part_reader.h"
#include "chain/plan.h"
#include "checkpoints.h"
#include "codec/codec.h"
#include "format/delta_part.h"
#include "format/layout.h"
#include "support/hooked_store.h"

namespace deltawire::testing {

using State = std::vector<TestTensor>;  // sorted by name

inline bool same_state(const State& a, const State& b) {
  return std::equal(
      a.begin(), a.end(), b.begin(), b.end(), [](const TestTensor& x, const TestTensor& y) {
        return x.name == y.name && x.dtype == y.dtype && x.shape == y.shape && x.bytes == y.bytes;
      });
}

class RealChain {
 public:
  explicit RealChain(ChainKeys options = {})
      : memory(std::make_shared<MemoryStore>()),
        store(std::make_shared<HookedStore>(memory)),
        chain(create_chain(store, std::move(options), false).value()) {
    store->has_clock = false;
  }

  static State seed_state(uint64_t seed) {
    return {make_tensor("a", DType::kBF16, {8, 4}, seed), make_tensor("b", DType::kF32, {5}, seed),
            make_tensor("c", DType::kU8, {3}, seed)};
  }

  // The seed, or a version in which a few elements of the last state changed.
  void publish_step(bool full = false) {
    State next = states.empty() ? seed_state(1) : states.back();
    if (!states.empty()) {
      for (TestTensor& tensor : next) change(&tensor, 0.3, states.size());
      change_one(&next[states.size() % 2]);
    }
    publish(next, full);
  }

  void publish(const State& next, bool full = false) {
    full = full || states.empty();
    Manifest m{.run = chain.run(),
               .version = states.size(),
               .kind = full ? VersionKind::kFull : VersionKind::kDelta};
    if (full) m.reason = "test";
    if (!full) m.base = m.version - 1;
    if (!records.empty()) m.parent = records.back().digest;
    m.created = "2026-11-15T05:36:24Z";
    m.publisher = "test:1";
    m.codec = "tight";
    m.files = put_files(m.version);
    Schema schema;
    for (const TestTensor& tensor : next) {
      schema.tensors.push_back({tensor.name, tensor.dtype, tensor.shape});
      m.digests.push_back(digest_of(DigestKind::kSum128, tensor.bytes));
    }
    m.schema = put_schema(chain, schema).value();
    m.state = state_digest(states_of(schema, m).value());
    if (full) {
      m.parts = put_whole(m.version, next, files);
    } else {
      m.parts = put_delta(m.version, records.back().manifest.state, states.back(), next);
    }
    m.chain_bytes = (records.empty() ? 0 : records.back().manifest.chain_bytes) + m.part_bytes();
    if (full) anchor_ = m.version, anchor_bytes_ = m.part_bytes();
    m.anchor = anchor_;
    m.anchor_bytes = anchor_bytes_;
    const Commit committed = commit_version(chain, m);
    ASSERT_TRUE(committed.ok()) << committed.status.to_string();
    states.push_back(next);
    files_of.push_back(files);
    records.push_back({m, committed.digest});
  }

  void add_anchor(uint64_t version) {
    auto parts = put_whole(version, states[version], files_of[version]);
    must(add_hop(chain, nullptr, records[version], parts));
    if (version >= anchor_) {
      anchor_ = version;
      anchor_bytes_ = 0;
      for (const PartRef& part : parts) anchor_bytes_ += part.size_bytes;
    }
  }

  void add_merged(uint64_t base, uint64_t version) {
    auto parts = put_delta(version, records[base].manifest.state, states[base], states[version]);
    must(add_hop(chain, &records[base], records[version], parts));
  }

  Held held(uint64_t version) const { return {version, records[version].digest}; }

  std::shared_ptr<MemoryStore> memory;
  std::shared_ptr<HookedStore> store;
  Chain chain;
  std::vector<State> states;
  std::vector<VersionRecord> records;
  // Files beside the weights, contents by name: of the next version, and of all.
  using Files = std::map<std::string, std::string>;
  Files files = {{"config.json", "{}\n"}};
  std::vector<Files> files_of;

 private:
  static void change_one(TestTensor* tensor) { tensor->bytes[0] ^= 1; }

  PartRef put(const std::string& name, const std::string& bytes) {
    EXPECT_TRUE(memory->put(name, MemoryBody(bytes)).ok());
    return {name, bytes.size(), record_digest(bytes)};
  }

  // What the last version has is named again; the rest is put.
  std::vector<SideFile> put_files(uint64_t version) {
    const std::string attempt = side_attempt(version, random_hex(8));
    std::vector<SideFile> list;
    for (const auto& [name, text] : files) {
      SideFile file{name, text.size(), record_digest(text), attempt};
      const SideFile* there = nullptr;
      if (!records.empty()) {
        for (const SideFile& one : records.back().manifest.files) {
          if (one.sha256 == file.sha256) there = &one;
        }
      }
      if (there != nullptr) {
        file.attempt = there->attempt;
      } else {
        put(side_object(file).name, text);
      }
      list.push_back(std::move(file));
    }
    return list;
  }

  std::vector<PartRef> put_whole(uint64_t version, const State& state, const Files& beside) {
    const std::string folder = full_folder(version, random_hex(8));
    std::vector<TensorSpec> specs;
    std::string data;
    for (const TestTensor& tensor : state) {
      specs.push_back({tensor.name, tensor.dtype, tensor.shape});
      data.append(tensor.bytes.begin(), tensor.bytes.end());
    }
    std::vector<PartRef> parts = {
        put(folder + "model.safetensors",
            serialise_safetensors_header(specs, {{"format", "pt"}}).value() + data)};
    for (const auto& [name, text] : beside) {
      if (check_object_name(name).ok()) parts.push_back(put(folder + name, text));
    }
    return parts;
  }

  // Two parts, so that there is more than one.
  std::vector<PartRef> put_delta(uint64_t version, const Digest& base, const State& before,
                                 const State& after) {
    const std::string folder = part_folder(version, random_hex(8));
    std::vector<EntryRecord> entries[2];
    std::string payloads[2];
    for (size_t i = 0; i < after.size(); ++i) {
      if (after[i].bytes == before[i].bytes) continue;
      const Codec* codec = find_codec(i == 0 ? "tight" : "gaps");
      const Encoded encoded =
          codec->encode(layout_of(after[i].dtype), before[i].bytes, after[i].bytes, nullptr)
              .value();
      DeltaEntry entry{after[i].name,
                       after[i].dtype,
                       after[i].shape,
                       {},
                       codec->id(),
                       encoded.num_changed,
                       digest_of(DigestKind::kSum128, before[i].bytes),
                       digest_of(DigestKind::kSum128, after[i].bytes)};
      entries[i % 2].push_back({std::move(entry), encoded.payload.size(),
                                digest_of(DigestKind::kXxh3_128, encoded.payload)});
      payloads[i % 2].append(encoded.payload.begin(), encoded.payload.end());
    }
    DeltaInfo info{.base = base};
    std::vector<PartRef> parts;
    for (size_t p = 0; p < 2; ++p) {
      parts.push_back(put(folder + "part-0000" + std::to_string(p) + ".safetensors",
                          serialise_part_header(info, entries[p]).value() + payloads[p]));
    }
    return parts;
  }

  uint64_t anchor_ = 0, anchor_bytes_ = 0;
};

// Fetches and applies a plan as a replica would.
inline Result<State> follow_plan(Store& store, const Plan& plan, State state) {
  for (const Hop& hop : plan.hops) {
    for (const PartRef& part : hop.parts) {
      DW_ASSIGN_OR_RETURN(const std::vector<uint8_t> bytes, read_part(store, part, {}));
      if (!hop.base) {
        if (!part.name.ends_with(".safetensors")) continue;
        DW_ASSIGN_OR_RETURN(const SafetensorsView view, parse_safetensors(bytes));
        state.clear();
        for (const TensorView& tensor : view.tensors) {
          state.push_back({tensor.name,
                           tensor.dtype,
                           tensor.shape,
                           {tensor.bytes.begin(), tensor.bytes.end()}});
        }
        continue;
      }
      DW_ASSIGN_OR_RETURN(const DeltaPart parsed, parse_part(bytes));
      for (const PayloadView& view : parsed.entries) {
        for (TestTensor& tensor : state) {
          if (tensor.name != view.entry.tensor) continue;
          DW_RETURN_IF_ERROR(
              find_codec(view.entry.codec)
                  ->apply(layout_of(tensor.dtype), view.payload, tensor.bytes, nullptr));
        }
      }
    }
  }
  return state;
}

}  // namespace deltawire::testing
