/* SPDX-License-Identifier: Apache-2.0
 *
 * channels.h: an end of a channel for code of the user's own: a kernel (nvcc, NVRTC, CuPy), or its twin on the host. The other end
 * may be a plan's, a queue's (plans.h) or another kernel's, in this process or another one. Part of thalweg.h, whose conventions
 * hold; what the code then calls is in device/channel.hpp, and docs/kernels.md has a sample.
 *
 * Threads: binding progresses the endpoint's worker, so it belongs to its user; everything else takes any thread.
 */
#ifndef THALWEG_CHANNELS_H
#define THALWEG_CHANNELS_H

#include <thalweg/windows.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tw_channel_end tw_channel_end;

typedef struct tw_channel_options {
  size_t size;
  const char *place;    /* where the code runs: "cuda:1", "emulated:0", "host"; NULL: the device of the first buffer that is
                          device memory, else "host" */
  uint64_t timeout_ns;  /* of binding, and of every wait of the code; 0: 30 s */
  size_t message_bytes; /* of a sending end: the longest message, where the host carries the channel; 0: 1 MiB */
} tw_channel_options;
#define TW_CHANNEL_OPTIONS_INIT {sizeof(tw_channel_options), NULL, 0, 0}

/** Where messages may land. length in bytes; with a layout 0, or what the layout moves. */
typedef struct tw_channel_buffer {
  void *address;
  size_t length;
  const tw_layout *layout; /* NULL: contiguous; not used after the call */
} tw_channel_buffer;

/** Takes the sending end of a channel (a number for each endpoint and direction, no tag: plans.h) for code at a place, until
 *  tw_channel_end_release. Waits until the peer has bound the other end, or has prepared a plan or called tw_recv_on for it,
 *  at most timeout_ns; not where the channel is open from before, and a kernel has had an end of it, messages of it are not received, or
 *  the host carries it in any case (another machine, tcp). The code must send from memory that it reaches itself.
 *  Where the two ends do not reach each other by loads and stores (another machine, tcp, pool or managed memory, a device and a host),
 *  or a receive's buffer is a list of more than 4,096 pieces, the host carries the messages: the code copies each into one of several
 *  bounce buffers of message_bytes (2 to 32, 4 MiB together if they are short; 64 MiB for each peer), and its send returns then; the
 *  context's proxy thread sends it. A warning has the reason. A send of more than message_bytes fails with TW_ERR_TRUNCATED; one that is
 *  longer than the receive's buffer fails both ends as well, but the code may learn that from a later operation, or
 *  tw_channel_end_check.
 *  Buffers that the receiver adds later (another plan, tw_recv_on with another one) are imported then; a kernel that already
 *  waits for them may block the import until its wait expires: prepare them before the kernel starts.
 *  TW_ERR_UNSUPPORTED, at both ends: the receiving code does not reach its own buffers (a device pageable memory, the host a device's);
 *  the text has the reason. An end, or a plan, that relies on the open channel there fails with it. TW_ERR_BUSY: a plan, a queue's
 *  operations or another binding of this process has the end. TW_ERR_LIMIT: the bounce buffers' 64 MiB. TW_ERR_TIMED_OUT,
 *  TW_ERR_PEER_LOST. */
TW_CHECKED tw_status tw_channel_bind_send(tw_endpoint *endpoint, uint64_t channel, const tw_channel_options *options,
                                          tw_channel_end **end);
/** The same for the receiving end. buffers[count] (1 to 256) are where the peer's messages land, whichever the code posts; they must
 *  live until the end is released. Plans and queues of the sender need not be paired: any number of them may send to it. */
TW_CHECKED tw_status tw_channel_bind_recv(tw_endpoint *endpoint, const tw_channel_buffer *buffers, size_t count,
                                          uint64_t channel, const tw_channel_options *options, tw_channel_end **end);

/** The thalweg::device::SendEnd or RecvEnd, in the memory of the place: what the code's Sender or Receiver is made of. */
TW_CHECKED tw_status tw_channel_end_address(const tw_channel_end *end, void **address);
/** Pass it by value, as a thalweg::device::Guard. */
TW_CHECKED tw_status tw_channel_end_guard(const tw_channel_end *end, tw_device_guard *guard);
/** The number by which a receive of the code names buffer `index`. */
TW_CHECKED tw_status tw_channel_end_recv_buffer(const tw_channel_end *end, size_t index, uint32_t *recv_buffer);
/** The end's way: mapped, or carried by the host, and why. Text; *size as in tw_context_info. */
TW_CHECKED tw_status tw_channel_end_explain(const tw_channel_end *end, char *buffer, size_t *size);
/** TW_OK, or the failure, with a text: the one that the code recorded, which this call sends to the peer; the peer's
 *  failure; TW_ERR_PEER_LOST. A failure is final: release both ends and bind (or prepare) them again. Does not block. */
TW_CHECKED tw_status tw_channel_end_check(tw_channel_end *end);
/** The code must have ended. Waits at most 5 s for the peer to release the buffers; until a failed peer has ended too, do
 *  not free memory of this process that it was to write to. The channel stays open and keeps its message count, for a plan,
 *  a queue or another binding; the peer's waits continue. What the host carries and the peer has not taken stays on its way, as a send
 *  that is complete. The handle is invalid in any case; NULL is TW_OK.
 *  TW_ERR_CANCELED: receives were posted and not taken: the channel has failed at both ends. */
TW_CHECKED tw_status tw_channel_end_release(tw_channel_end *end);

#ifdef __cplusplus
}
#endif

#endif
