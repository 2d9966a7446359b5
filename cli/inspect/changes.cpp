#include "cli/inspect/changes.h"

#include <algorithm>
#include <map>
#include <optional>
#include <type_traits>

#include "base/waves.h"
#include "codec/elements.h"
#include "delta/apply_plan.h"
#include "format/layout.h"

namespace deltawire::cli {
namespace {

void add_counts(const ExponentCounts& from, ExponentCounts* to) {
  to->resize(std::max(to->size(), from.size()));
  for (size_t i = 0; i < from.size(); ++i) (*to)[i] += from[i];
}

template <class Element>
void count_change(Element before, Element after, const std::optional<FloatForm>& form,
                  ChangeStatistics* statistics) {
  using Step = std::make_signed_t<Element>;
  constexpr int kLargest = ChangeStatistics::kLargestStep;
  ++statistics->num_changed;
  if (form) ++statistics->changed[size_t(before >> form->shift) & form->mask];
  const auto step = Step(Element(after - before));
  if (form && Step(Element(before ^ after)) < 0) {
    ++statistics->num_sign_flips;
  } else if (step >= -kLargest && step <= kLargest) {
    ++statistics->steps[size_t(int(step) + kLargest)];
  } else {
    ++(step > 0 ? statistics->num_jumps_up : statistics->num_jumps_down);
  }
}

Status count_entry(const Delta::Entry& item, Bytes tensor, ThreadPool* pool,
                   ChangeStatistics* statistics) {
  const DeltaEntry& entry = item.entry;
  Bytes before = tensor;
  std::vector<uint8_t> contents;
  if (!entry.box.whole()) {
    contents.resize(entry.box_bytes());
    copy_box_out(entry.box, entry.dtype, entry.shape, tensor, contents);
    before = contents;
  }
  const Codec* codec = find_codec(entry.codec);
  if (codec == nullptr) return unsupported(item.place + ": codec is not known");
  const Layout layout = layout_of(entry.dtype);
  auto decoded = codec->decode(layout, item.payload, before, pool);
  if (!decoded.ok()) return std::move(decoded).status().at(item.place);
  const Changes& changes = *decoded;
  const auto form = float_form(entry.dtype);
  with_element(layout.width, [&](auto zero) {
    using Element = decltype(zero);
    for (size_t i = 0; i < changes.positions.size(); ++i) {
      const auto old_value =
          load_le<Element>(before.data() + changes.positions[i] * sizeof(Element));
      const auto new_value = load_le<Element>(changes.values.data() + i * sizeof(Element));
      if (old_value != new_value) count_change(old_value, new_value, form, statistics);
    }
  });
  return {};
}

// The entries of one tensor; they are sorted by name.
std::span<const Delta::Entry> entries_of(const Delta& delta, std::string_view tensor) {
  const auto begin = std::lower_bound(
      delta.entries.begin(), delta.entries.end(), tensor,
      [](const Delta::Entry& item, std::string_view name) { return item.entry.tensor < name; });
  const auto end = std::find_if(begin, delta.entries.end(), [&](const Delta::Entry& item) {
    return item.entry.tensor != tensor;
  });
  return {begin, end};
}

Status count_tensor(const Delta& delta, const TensorView& view, ThreadPool* pool,
                    ChangeStatistics* statistics) {
  const auto entries = entries_of(delta, view.name);
  if (!entries.empty() && !entries[0].entry.old_digest) return {};  // replaced by a whole one
  const auto form = float_form(view.dtype);
  statistics->num_elements = view.bytes.size() / layout_of(view.dtype).width;
  if (form) {
    count_exponents(*form, view.bytes, &statistics->elements);
    statistics->changed.resize(statistics->elements.size());
  }
  for (const Delta::Entry& item : entries) {
    DW_RETURN_IF_ERROR(count_entry(item, view.bytes, pool, statistics));
  }
  return {};
}

}  // namespace

void ChangeStatistics::add(const ChangeStatistics& other) {
  num_elements += other.num_elements;
  num_changed += other.num_changed;
  num_jumps_up += other.num_jumps_up;
  num_jumps_down += other.num_jumps_down;
  num_sign_flips += other.num_sign_flips;
  for (size_t i = 0; i < steps.size(); ++i) steps[i] += other.steps[i];
  add_counts(other.elements, &elements);
  add_counts(other.changed, &changed);
}

Result<std::vector<ChangeStatistics>> change_statistics(const Delta& delta, const Checkpoint& base,
                                                        std::string_view tensor, ThreadPool* pool,
                                                        const Progress& progress) {
  const uint64_t total = base.data_bytes() * 2;  // read once to check, once to count
  uint64_t finished = 0;
  const Progress halves = [&](uint64_t done, uint64_t) {
    return !progress || progress(std::min(total, finished + done), total);
  };
  DW_RETURN_IF_ERROR(check_base(base, delta, pool, halves).status());
  finished = base.data_bytes();

  std::vector<const TensorView*> views;
  std::vector<uint64_t> sizes;
  for (const CheckpointTensor& one : base.tensors()) {
    if (!tensor.empty() && tensor != one.view.name) continue;
    views.push_back(&one.view);
    sizes.push_back(one.view.bytes.size());
  }
  std::vector<ChangeStatistics> of_tensor(views.size());
  std::map<DType, ChangeStatistics> of_dtype;
  DW_RETURN_IF_ERROR(Waves(std::move(sizes), Waves::Inside::kShared, pool, halves)
                         .run(
                             [&](size_t i, ThreadPool* inner) {
                               return count_tensor(delta, *views[i], inner, &of_tensor[i]);
                             },
                             [&](size_t i) {
                               of_dtype[views[i]->dtype].add(of_tensor[i]);
                               of_tensor[i] = {};
                               return Status();
                             }));
  std::vector<ChangeStatistics> result;
  for (auto& [dtype, statistics] : of_dtype) {
    statistics.dtype = dtype;
    if (statistics.num_elements != 0) result.push_back(std::move(statistics));
  }
  return result;
}

}  // namespace deltawire::cli
