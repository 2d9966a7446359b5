#include "cli/inspect/statistics.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <type_traits>

#include "base/waves.h"
#include "cli/table.h"
#include "cli/units.h"
#include "codec/elements.h"
#include "delta/apply_plan.h"
#include "format/layout.h"

namespace deltawire::cli {

namespace {

// What a field means when it is not a power of two; null otherwise.
const char* special_name(DType dtype, const FloatForm& form, size_t field) {
  if (field == 0) return "0, subnormal";
  // E4M3 has no infinities: its highest exponent is one like the others.
  if (field == form.mask && dtype != DType::kF8_E4M3) return "inf, nan";
  return nullptr;
}

}  // namespace

std::optional<FloatForm> float_form(DType dtype) noexcept {
  switch (dtype) {
    case DType::kF8_E5M2:
      return FloatForm{1, 2, 0x1f, 15};
    case DType::kF8_E4M3:
      return FloatForm{1, 3, 0x0f, 7};
    case DType::kF16:
      return FloatForm{2, 10, 0x1f, 15};
    case DType::kBF16:
      return FloatForm{2, 7, 0xff, 127};
    case DType::kF32:
    case DType::kC64:
      return FloatForm{4, 23, 0xff, 127};
    case DType::kF64:
      return FloatForm{8, 52, 0x7ff, 1023};
    default:
      return std::nullopt;
  }
}

std::string exponent_name(DType dtype, size_t field) {
  const FloatForm form = float_form(dtype).value();
  const char* special = special_name(dtype, form, field);
  return special != nullptr ? special : std::to_string(int(field) - form.bias);
}

Json exponent_json(DType dtype, size_t field) {
  const FloatForm form = float_form(dtype).value();
  const char* special = special_name(dtype, form, field);
  if (special != nullptr) return special;
  return int(field) - form.bias;
}

void count_exponents(const FloatForm& form, Bytes elements, ExponentCounts* counts) {
  counts->resize(size_t{form.mask} + 1);
  // Neighbours often share an exponent: four tables spare the wait for the same counter.
  std::array<ExponentCounts, 4> tables;
  for (ExponentCounts& table : tables) table.resize(counts->size());
  with_element(form.width, [&](auto zero) {
    using Element = decltype(zero);
    const size_t n = elements.size() / sizeof(Element);
    for (size_t i = 0; i < n; ++i) {
      const auto element = load_le<Element>(elements.data() + i * sizeof(Element));
      ++tables[i % tables.size()][size_t(element >> form.shift) & form.mask];
    }
  });
  for (const ExponentCounts& table : tables) {
    for (size_t field = 0; field < table.size(); ++field) (*counts)[field] += table[field];
  }
}

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

namespace {

constexpr int kLargest = ChangeStatistics::kLargestStep;
constexpr size_t kBarWidth = 30;

double share_of(uint64_t count, uint64_t total) {
  return total == 0 ? 0 : double(count) / double(total);
}

void say_steps(const Context& context, const ChangeStatistics& statistics) {
  const bool is_float = float_form(statistics.dtype).has_value();
  Table table({{is_float ? "ULPs" : "step"},
               {is_float ? "away from 0" : "up"},
               {is_float ? "towards 0" : "down"},
               {"share"},
               {"", false}});
  const auto add = [&](std::string name, std::string up, std::string down, uint64_t count) {
    if (count == 0) return;
    const double share = share_of(count, statistics.num_changed);
    table.add({std::move(name), std::move(up), std::move(down),
               fmt::format("{:.2f} %", share * 100), bar(context, share, kBarWidth)});
  };
  for (int step = 1; step <= kLargest; ++step) {
    const uint64_t up = statistics.steps[size_t(kLargest + step)];
    const uint64_t down = statistics.steps[size_t(kLargest - step)];
    add(std::to_string(step), human_count(up), human_count(down), up + down);
  }
  add("more", human_count(statistics.num_jumps_up), human_count(statistics.num_jumps_down),
      statistics.num_jumps_up + statistics.num_jumps_down);
  add("sign flip", "", human_count(statistics.num_sign_flips), statistics.num_sign_flips);
  context.say("");
  context.print("How far {} {} elements moved:", human_count(statistics.num_changed),
                dtype_name(statistics.dtype));
  table.say(context);
}

void say_classes(const Context& context, const ChangeStatistics& statistics) {
  Table table({{"exponent"}, {"elements"}, {"share"}, {"changed"}, {"P(changed)"}, {"", false}});
  constexpr double kLeast = 0.00001;  // what is rarer shares a line
  uint64_t rare_elements = 0, rare_changed = 0;
  const auto add = [&](std::string name, uint64_t elements, uint64_t changed) {
    const double p = share_of(changed, elements);
    table.add({std::move(name), human_count(elements),
               fmt::format("{:.3f} %", 100 * share_of(elements, statistics.num_elements)),
               human_count(changed), fmt::format("{:.5f}", p), bar(context, p, kBarWidth)});
  };
  for (size_t field = statistics.elements.size(); field-- > 0;) {
    if (share_of(statistics.elements[field], statistics.num_elements) < kLeast) {
      rare_elements += statistics.elements[field];
      rare_changed += statistics.changed[field];
    } else {
      add(exponent_name(statistics.dtype, field), statistics.elements[field],
          statistics.changed[field]);
    }
  }
  if (rare_elements != 0) add("others", rare_elements, rare_changed);
  context.say("");
  context.print("Changes of {} elements by their old exponent:", dtype_name(statistics.dtype));
  table.say(context);
}

}  // namespace

void say_movement(const Context& context, const ChangeStatistics& statistics) {
  if (statistics.num_changed == 0) return;
  say_steps(context, statistics);
  if (!statistics.elements.empty()) say_classes(context, statistics);
}

Json movement_json(const ChangeStatistics& statistics) {
  Json json = {{"dtype", dtype_name(statistics.dtype)},   {"elements", statistics.num_elements},
               {"changed", statistics.num_changed},       {"steps", Json::object()},
               {"jumps_up", statistics.num_jumps_up},     {"jumps_down", statistics.num_jumps_down},
               {"sign_flips", statistics.num_sign_flips}, {"exponents", Json::array()}};
  for (int step = -kLargest; step <= kLargest; ++step) {
    const uint64_t count = statistics.steps[size_t(step + kLargest)];
    if (step != 0) json["steps"][std::to_string(step)] = count;
  }
  for (size_t field = 0; field < statistics.elements.size(); ++field) {
    const uint64_t elements = statistics.elements[field], changed = statistics.changed[field];
    if (elements == 0) continue;
    json["exponents"].push_back({{"exponent", exponent_json(statistics.dtype, field)},
                                 {"elements", elements},
                                 {"changed", changed},
                                 {"p_changed", share_of(changed, elements)}});
  }
  return json;
}

}  // namespace deltawire::cli
