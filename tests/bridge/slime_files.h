// Versions in slime's layout, written by the tests' own hand: what a trainer leaves in a folder.
#pragma once

#include <gtest/gtest.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "base/json.h"
#include "checkpoints.h"
#include "deltawire/checkpoint.h"
#include "dialect/checksum.h"
#include "dialect/frames/zstd_frame.h"

namespace deltawire::testing {

using Model = std::vector<TestTensor>;

inline std::string slime_number(uint64_t version) {
  char text[32];
  std::snprintf(text, sizeof text, "%06llu", (unsigned long long)version);
  return text;
}

inline std::filesystem::path slime_folder(const std::filesystem::path& source, uint64_t version) {
  return source / ("weight_v" + slime_number(version));
}

inline void write_text(const std::filesystem::path& path, const std::string& text) {
  std::filesystem::create_directories(path.parent_path());
  std::ofstream(path, std::ios::binary) << text;
}

struct SlimeWriting {
  std::string encoding = "xor";
  size_t num_parts = 1;
  ChecksumKind checksum = ChecksumKind::kXxh3_128;
};

inline std::vector<uint8_t> slime_payload(const std::string& encoding, Bytes before, Bytes after) {
  std::vector<uint8_t> content;
  if (encoding == "xor") {
    for (size_t i = 0; i < after.size(); ++i) content.push_back(uint8_t(before[i] ^ after[i]));
  } else {
    std::vector<uint32_t> positions;
    for (size_t i = 0; i < after.size(); ++i) {
      if (before[i] != after[i]) positions.push_back(uint32_t(i));
    }
    content.resize(4 + 5 * positions.size());
    store_le(content.data(), uint32_t(positions.size()));
    for (size_t i = 0; i < positions.size(); ++i) {
      store_le(&content[4 + 4 * i], positions[i]);
      content[4 + 4 * positions.size() + i] = after[positions[i]];
    }
  }
  std::vector<uint8_t> frame;
  EXPECT_TRUE(ZstdCompressor().append(content, &frame).ok());
  return frame;
}

// `version`, on top of the one before it, with the tensors that differ.
inline void write_slime_delta(const std::filesystem::path& source, uint64_t version,
                              const Model& before, const Model& after,
                              const SlimeWriting& how = {}) {
  const std::filesystem::path folder = slime_folder(source, version);
  std::filesystem::create_directories(folder);
  std::vector<Model> parts(how.num_parts);
  std::vector<Metadata> digests(how.num_parts);
  nlohmann::json weight_map = nlohmann::json::object();
  for (size_t i = 0, next = 0; i < after.size(); ++i) {
    if (before[i].bytes == after[i].bytes) continue;
    const size_t part = next++ % how.num_parts;
    const auto payload = slime_payload(how.encoding, before[i].bytes, after[i].bytes);
    parts[part].push_back({after[i].name, DType::kU8, {payload.size()}, payload});
    digests[part].emplace_back(after[i].name, checksum_of(how.checksum, after[i].bytes).hex);
    weight_map[after[i].name] = "model-0000" + std::to_string(part) + "-of-0000" +
                                std::to_string(how.num_parts) + ".safetensors";
  }
  for (size_t p = 0; p < how.num_parts; ++p) {
    if (parts[p].empty()) continue;
    write_checkpoint(folder / weight_map[parts[p][0].name].get<std::string>(), parts[p],
                     digests[p]);
  }
  const nlohmann::json index = {{"metadata",
                                 {{"version", slime_number(version)},
                                  {"base_version", slime_number(version - 1)},
                                  {"delta_encoding", how.encoding},
                                  {"compression_format", "zstd"},
                                  {"checksum_format", checksum_name(how.checksum)}}},
                                {"weight_map", weight_map}};
  write_text(folder / "model.safetensors.index.json", json_text(index));
}

// An ordinary checkpoint under a version's name.
inline void write_slime_full(const std::filesystem::path& source, uint64_t version,
                             const Model& model, size_t num_files = 2) {
  write_sharded(slime_folder(source, version), model, num_files);
}

inline std::map<std::string, std::vector<uint8_t>> contents_of(const std::filesystem::path& path) {
  std::map<std::string, std::vector<uint8_t>> contents;
  const auto checkpoint = Checkpoint::open(path);
  EXPECT_TRUE(checkpoint.ok()) << checkpoint.status().to_string();
  if (!checkpoint.ok()) return contents;
  for (const CheckpointTensor& tensor : checkpoint->tensors()) {
    contents[tensor.view.name].assign(tensor.view.bytes.begin(), tensor.view.bytes.end());
  }
  return contents;
}

inline ::testing::AssertionResult holds(const std::filesystem::path& path, const Model& model) {
  const auto contents = contents_of(path);
  if (contents.size() != model.size()) {
    return ::testing::AssertionFailure() << contents.size() << " tensors";
  }
  for (const TestTensor& tensor : model) {
    const auto found = contents.find(tensor.name);
    if (found == contents.end() || found->second != tensor.bytes) {
      return ::testing::AssertionFailure() << tensor.name << " differs";
    }
  }
  return ::testing::AssertionSuccess();
}

}  // namespace deltawire::testing
