#include "live/wanted.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>

#include "base/clock.h"
#include "base/file.h"
#include "base/folder.h"
#include "base/guard.h"
#include "base/json.h"
#include "delta/local_boxes.h"
#include "tensor/box.h"
#include "tensor/box_math.h"
#include "tensor/safetensors.h"
#include "tensor/text.h"

namespace deltawire {
namespace fs = std::filesystem;
namespace {

constexpr unsigned kFetchedAtOnce = 8;
constexpr size_t kMaxDimensions = 16;
constexpr uint64_t kHeaderShare = 8;        // allowance for the next part's header
constexpr uint64_t kPieceBytes = 16 << 20;  // memory of each request
// The assumed bandwidth of a link, and the limits for bytes fetched to save a request.
constexpr double kLinkBytes = 100e6;
constexpr uint64_t kLeastGap = 1 << 10, kMostGap = 1 << 20;

// Sorts the ranges and joins those that are at most `gap` bytes apart.
Ranges joined(Ranges ranges, uint64_t gap) {
  std::sort(ranges.begin(), ranges.end(),
            [](const ByteRange& a, const ByteRange& b) { return a.offset < b.offset; });
  Ranges out;
  for (const ByteRange& range : ranges) {
    if (range.size == 0) continue;
    if (!out.empty() && range.offset <= out.back().offset + out.back().size + gap) {
      const uint64_t end = std::max(out.back().offset + out.back().size, range.offset + range.size);
      out.back().size = end - out.back().offset;
    } else {
      out.push_back(range);
    }
  }
  return out;
}

// The parts of `wanted` that are not in `have`. Both are sorted.
Ranges without(const Ranges& wanted, const Ranges& have) {
  Ranges out;
  for (ByteRange range : wanted) {
    for (const ByteRange& known : have) {
      const uint64_t end = range.offset + range.size, known_end = known.offset + known.size;
      if (known_end <= range.offset) continue;
      if (known.offset >= end) break;
      if (known.offset > range.offset) {
        out.push_back({range.offset, known.offset - range.offset});
      }
      range = {std::min(known_end, end), end - std::min(known_end, end)};
    }
    if (range.size != 0) out.push_back(range);
  }
  return out;
}

// The ranges of an entry's payload that these boxes need. `front` is the beginning of the payload.
Result<Ranges> payload_ranges(const PayloadView& view, Bytes front,
                              const std::vector<std::pair<TensorSpec, Box>>& boxes) {
  const DeltaEntry& entry = view.entry;
  Ranges all;
  for (const auto& [tensor, box] : boxes) {
    // A worker that holds the tensor in another form reports that when it stages.
    if (!same_form(tensor, entry)) continue;
    static uint8_t nowhere;  // only the positions of the regions matter; nothing is read
    const LocalBox held{box, &nowhere, {}};
    DW_ASSIGN_OR_RETURN(const std::vector<Region> regions, regions_of(entry, {&held, 1}));
    DW_ASSIGN_OR_RETURN(const Ranges ranges,
                        find_codec(entry.codec)
                            ->wanted_bytes(entry.layout(), size_t(entry.num_elements()), front,
                                           view.payload.size(), regions, 0));
    all.insert(all.end(), ranges.begin(), ranges.end());
  }
  return all;
}

std::optional<Shape> numbers_of(const nlohmann::json& json) {
  Shape numbers;
  if (!json.is_array() || json.size() > kMaxDimensions) return {};
  for (const nlohmann::json& one : json) {
    if (!one.is_number_unsigned() || one.get<uint64_t>() > INT64_MAX) return {};
    numbers.push_back(one.get<uint64_t>());
  }
  return numbers;
}

}  // namespace

Status add_boxes(std::string_view text, WantedBoxes* wanted) {
  const Status malformed = corruption(
      "boxes of a worker: expected a list of [name, dtype, [shape], [offset], [extent]]");
  const nlohmann::json json = parse_json(text);
  if (!json.is_array()) return malformed;
  for (const nlohmann::json& one : json) {
    if (!one.is_array() || one.size() != 5 || !one[0].is_string() || !one[1].is_string()) {
      return malformed;
    }
    const std::string name = one[0].get<std::string>();
    const std::optional<DType> dtype = parse_dtype(one[1].get<std::string>());
    const std::optional<Shape> shape = numbers_of(one[2]), offset = numbers_of(one[3]),
                               extent = numbers_of(one[4]);
    if (!dtype || !shape || !offset || !extent || offset->size() != shape->size() ||
        extent->size() != shape->size()) {
      return malformed;
    }
    const Box box{*offset, *extent};
    if (num_elements_of(box) == 0) continue;
    const Status inside = check_box(box, *dtype, *shape);
    if (!inside.ok()) {
      return corruption("boxes of a worker: tensor " + quote(name) + ": " + inside.message());
    }
    const std::pair<TensorSpec, Box> own{{name, *dtype, *shape}, normalise_box(box, *shape)};
    std::vector<std::pair<TensorSpec, Box>>& boxes = (*wanted)[name];
    if (std::find(boxes.begin(), boxes.end(), own) == boxes.end()) boxes.push_back(own);
  }
  return {};
}

// A file under a temporary name while it is fetched.
struct RangedFetch::File {
  fs::path path;
  Descriptor descriptor;
  Ranges have;
  std::shared_ptr<MappedFile> mapped;

  ~File() {
    std::error_code error;
    fs::remove(path, error);  // unless it was renamed
  }

  Status copy(const fs::path& from, const Ranges& ranges) {
    DW_ASSIGN_OR_RETURN(const auto old, MappedFile::open(from));
    if (!ranges.empty() && ranges.back().offset + ranges.back().size > old->bytes().size()) {
      return corruption(from.string() + ": is shorter than it was");
    }
    for (const ByteRange& range : ranges) {
      const Bytes bytes = old->bytes().subspan(size_t(range.offset), size_t(range.size));
      DW_RETURN_IF_ERROR(write_all(descriptor.get(), range.offset, bytes, path));
    }
    have = ranges;
    return old->check_whole();
  }
};

RangedFetch::RangedFetch(Store& store, std::optional<uint64_t> gap)
    : store_(store), gap_(gap), pool_(kFetchedAtOnce) {}

// While one request waits, the others transfer data.
uint64_t RangedFetch::gap() const {
  const double bytes = request_seconds_ * kLinkBytes / kFetchedAtOnce;
  return gap_.value_or(std::clamp(uint64_t(bytes), kLeastGap, kMostGap));
}

Status RangedFetch::fetch(const PartRef& part, const WantedBoxes& wanted, const Check& check,
                          const fs::path& to, Ranges* have) {
  for (int attempt = 0;; ++attempt) {
    const fs::path path = temporary_path(to);
    File file{path,
              Descriptor(::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666)),
              {},
              {}};
    if (file.descriptor.get() < 0) return system_error(path, "cannot create");
    if (::ftruncate(file.descriptor.get(), off_t(part.size_bytes)) != 0) {
      return system_error(path, "cannot write");
    }
    Status status = have->empty() ? Status() : file.copy(to, *have);
    if (status.ok()) status = fetch_once(part, wanted, check, &file);
    if (status.code() == Code::kCorruption && attempt == 0) {
      have->clear();  // retry once: the data may have been damaged in transfer
      continue;
    }
    DW_RETURN_IF_ERROR(std::move(status).at(store_.url() + "/" + part.name));
    DW_RETURN_IF_ERROR(rename_path(path, to));
    *have = std::move(file.have);
    return {};
  }
}

Status RangedFetch::fetch_once(const PartRef& part, const WantedBoxes& wanted, const Check& check,
                               File* file) {
  const double begin = steady_seconds();
  const bool is_new = file->have.empty();
  DW_RETURN_IF_ERROR(add(part, {{0, std::min(part.size_bytes, header_bytes_)}}, file));
  if (is_new) request_seconds_ = std::min(request_seconds_, steady_seconds() - begin);
  DW_ASSIGN_OR_RETURN(file->mapped, MappedFile::open(file->path));
  const Bytes bytes = file->mapped->bytes();
  if (bytes.size() < sizeof(uint64_t)) return corruption("not a safetensors file");
  const uint64_t header = load_le<uint64_t>(bytes.data());
  if (header > kMaxHeaderBytes || header > bytes.size() - sizeof header) {
    return corruption("header of " + std::to_string(header) + " bytes in a file of " +
                      std::to_string(bytes.size()));
  }
  DW_RETURN_IF_ERROR(add(part, {{0, sizeof header + header}}, file));
  header_bytes_ = sizeof header + header + header / kHeaderShare;
  DW_ASSIGN_OR_RETURN(const DeltaPart parsed, parse_part(bytes, PartContents::kSome));
  DW_RETURN_IF_ERROR(check(parsed));

  struct Item {
    const PayloadView* view;
    const std::vector<std::pair<TensorSpec, Box>>* boxes;
    uint64_t offset, front;
  };
  std::vector<Item> items;
  Ranges fronts, ranges;
  for (const PayloadView& view : parsed.entries) {
    const auto boxes = wanted.find(view.entry.tensor);
    if (boxes == wanted.end()) continue;
    const uint64_t offset = uint64_t(view.payload.data() - bytes.data());
    const uint64_t front = std::min<uint64_t>(
        view.payload.size(),
        find_codec(view.entry.codec)
            ->front_bytes(view.entry.layout(), size_t(view.entry.num_elements())));
    items.push_back({&view, &boxes->second, offset, front});
    fronts.push_back({offset, front});
  }
  DW_RETURN_IF_ERROR(add(part, std::move(fronts), file));
  for (const Item& item : items) {
    DW_ASSIGN_OR_RETURN(
        const Ranges own,
        payload_ranges(*item.view, item.view->payload.first(size_t(item.front)), *item.boxes));
    for (const ByteRange& range : own) ranges.push_back({item.offset + range.offset, range.size});
  }
  return add(part, std::move(ranges), file);
}

Status RangedFetch::add(const PartRef& part, Ranges wanted, File* file) {
  const Ranges missing = joined(without(joined(std::move(wanted), 0), file->have), gap());
  Ranges pieces;
  for (ByteRange range : missing) {
    fetched_bytes_ += range.size;
    file->have.push_back(range);
    for (; range.size > kPieceBytes;
         range = {range.offset + kPieceBytes, range.size - kPieceBytes}) {
      pieces.push_back({range.offset, kPieceBytes});
    }
    pieces.push_back(range);
  }
  DW_RETURN_IF_ERROR(
      parallel_try("fetching", &pool_, pieces.size(), [&](size_t i, unsigned) -> Status {
        std::vector<uint8_t> bytes(size_t(pieces[i].size));
        DW_RETURN_IF_ERROR(store_.read(part.name, pieces[i].offset, bytes));
        return write_all(file->descriptor.get(), pieces[i].offset, bytes, file->path);
      }));
  file->have = joined(std::move(file->have), 0);
  return {};
}

}  // namespace deltawire
