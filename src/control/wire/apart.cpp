#include "control/wire/apart.h"

#include "control/wire/tensors_inside.h"
#include "core/arena.h"
#include "core/items.h"

namespace tutti::detail {

void encode(Writer& out, const std::vector<Offer>& offers) {
  out.put(static_cast<uint64_t>(offers.size()));
  for (const Offer& offer : offers) {
    out.put(offer.dtype);
    out.list(offer.shape);
    out.put(offer.place.where);
    out.put(offer.place.fd);
    out.put(offer.place.extent);
    out.put(offer.place.offset);
  }
}

std::vector<Offer> decode_offers(Reader& in) {
  std::vector<Offer> offers;
  for (uint64_t n = in.count(33); n > 0; --n) {
    Offer offer{.dtype = in.get<DType>(), .shape = in.list<int64_t>(), .place = {}};
    offer.place.where = in.get<Operand::Where>();
    offer.place.fd = in.get<int32_t>();
    offer.place.extent = in.get<uint64_t>();
    offer.place.offset = in.get<uint64_t>();
    int64_t size_bytes = 0;
    try {
      if (__builtin_mul_overflow(element_count(offer.shape), offer.dtype.size_bytes(), &size_bytes) || size_bytes < kApart)
        throw WireError("a tensor that travels apart has an impossible size");
    } catch (const UsageError& error) {
      throw WireError(error.what());
    }
    if (offer.place.where != Operand::Where::kForeign && offer.place.where != Operand::Where::kArena)
      throw WireError("a tensor that travels apart lies nowhere");
    offer.place.size_bytes = static_cast<uint64_t>(size_bytes);
    offers.push_back(std::move(offer));
  }
  return offers;
}

Offer offer_of(const Tensor& tensor, bool is_near) {
  Offer offer{.dtype = tensor.dtype(), .shape = tensor.shape(), .place = {}};
  if (const auto place = is_near ? Arena::here().find(tensor.data(), offer.size_bytes()) : std::nullopt)
    offer.place = {.where = Operand::Where::kArena,
                   .fd = place->fd,
                   .extent = place->extent,
                   .offset = place->offset,
                   .size_bytes = offer.size_bytes()};
  return offer;
}

Value set_apart(const Value& value, std::vector<Tensor>& large) {
  const auto* tensor = std::get_if<Tensor>(&value.data());
  if (tensor && tensor->size_bytes() >= kApart && tensor->device().type == dl::kCPU) {
    large.push_back(tensor->contiguous());
    return RegisterRef{0, std::ssize(large) - 1};
  }
  const auto rest = with_items(value, [&](const Value& item) { return set_apart(item, large); });
  return rest ? *rest : copy_tensors(value);
}

Value put_together(const Value& value, const std::vector<Tensor>& large) {
  if (const auto* number = std::get_if<RegisterRef>(&value.data())) {
    if (number->id < 0 || number->id >= std::ssize(large)) throw WireError("a value lacks a tensor that travels apart");
    return large[static_cast<size_t>(number->id)];
  }
  if (large.empty()) return value;
  return with_items(value, [&](const Value& item) { return put_together(item, large); }).value_or(value);
}

}  // namespace tutti::detail
