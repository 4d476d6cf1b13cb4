/* SPDX-License-Identifier: Apache-2.0
 *
 * topology.h: what is in this machine, what lies between two parts of it, and where its ranks belong. Part of thalweg.h, whose
 * conventions hold.
 *
 * The topology is one graph. Its nodes have a name of kind and number: machine, package:0, numa:0, cache:0 (the last level), core:0,
 * bridge:0 (a PCIe host bridge), switch:0 (of PCIe), gpu:0, nic:0, nvswitch:0. Processors, as the operating system numbers them,
 * belong to a core; processor:7 names the core that has number 7. Links are PCIe, NVLink, memory buses and those between sockets.
 *
 * It is found at the first question (hwloc, else /sys; NVML for GPUs and NVLinks; some ten milliseconds, with GPUs up to a second)
 * and stays as it is until the process ends. No device is initialised. THALWEG_TOPOLOGY=FILE takes a saved one instead, of this
 * machine or another one: what the file says then also decides which devices reach each other (docs/topology.md). A file that is not
 * right ends every call here, and tw_context_create, with TW_ERR_INVALID or TW_ERR_IO, and the text names the place in it.
 *
 * Any thread may call these functions; none waits for peers, and none belongs to a context.
 */
#ifndef THALWEG_TOPOLOGY_H
#define THALWEG_TOPOLOGY_H

#include <thalweg/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/** All of it as JSON text, in the format that THALWEG_TOPOLOGY reads (docs/topology.md): {"format": "thalweg topology 1", "name":,
 *  "source":, "nodes": [...], "links": [...]}. Bandwidths are bytes per second in each direction. *size is the capacity in, the size
 *  with its NUL out; buffer NULL asks for the size. */
TW_CHECKED tw_status tw_topology_json(char *buffer, size_t *size);

/** 64-bit words of a set of processors: bit p % 64 of word p / 64 is processor p, as in a cpu_set_t. */
#define TW_PROCESSOR_WORDS 16

/** Where a rank belongs. */
typedef struct tw_placement {
  size_t size;     /* of this struct, set by the caller: TW_PLACEMENT_INIT */
  int32_t gpu;     /* number in the topology, gpu:N; -1: there is none */
  int32_t device;  /* that GPU's ordinal in this process, which its environment may have changed; -1: not visible here */
  int32_t numa;    /* number of the NUMA node; -1: not known */
  uint32_t shared; /* ranks that have this GPU, with this one; 0 without a GPU */
  char place[32];  /* of the device, as in tw_memory_options.place: "cuda:3"; "host" where device is -1 */
  char nic[64];    /* name of the nearest network card's interface or device: "mlx5_0", "eth0"; empty: none */
  uint64_t processors[TW_PROCESSOR_WORDS]; /* that the rank should run on; none of it: not known */
} tw_placement;
#define TW_PLACEMENT_INIT                                \
  {                                                      \
    sizeof(tw_placement), -1, -1, -1, 0, {0}, {0}, { 0 } \
  }

/** Where rank `rank` of `ranks` processes of this machine belongs: its GPU, the processors near it, the nearest network card. All ranks
 *  that ask with the same `ranks`, environment and affinity get answers that fit together: GPUs are shared evenly where there are
 *  fewer of them than ranks, those with the best links among them are taken where there are more; the cores of a NUMA node are
 *  divided among its ranks, threads of one core together while there are cores enough. It is a suggestion: it binds nothing and
 *  hides no device. Only processors that this process may run on count, unless the topology is from a file.
 *  Where devices' libraries are present they are initialised to learn `device` (no device gets a context).
 *  TW_ERR_INVALID: rank is not below ranks, or there are more than 65536. */
TW_CHECKED tw_status tw_topology_place(uint32_t rank, uint32_t ranks, tw_placement *placement);

/** What lies between two nodes. */
typedef struct tw_distance {
  size_t size; /* of this struct, set by the caller: TW_DISTANCE_INIT */
  /* "X" the same node; "NV6": six NVLinks; "PIX": one PCIe switch; "PXB": several; "PHB": a PCIe host bridge; "NODE": a NUMA node;
     "SYS": the links between NUMA nodes; between processors "core", "cache", "node", "far". */
  char kind[16];
  uint32_t hops;       /* links that are passed, NVLinks side by side counting as one */
  uint32_t links;      /* NVLinks side by side that are up */
  uint32_t links_down; /* and those that are there and down */
  double bandwidth;    /* bytes per second in each direction, of the narrowest link; 0: not known */
  char path[512];      /* the nodes that are passed: "gpu:0 - switch:0 - gpu:1" */
  char note[256];      /* what is down, narrower than it could be, or not known (NVLinks without NVML); empty: nothing */
} tw_distance;
#define TW_DISTANCE_INIT                             \
  {                                                  \
    sizeof(tw_distance), {0}, 0, 0, 0, 0, {0}, { 0 } \
  }

/** What lies between the nodes of these names. TW_ERR_INVALID: there is no such node; the text has the names there are. */
TW_CHECKED tw_status tw_topology_distance(const char *from, const char *to, tw_distance *distance);

#ifdef __cplusplus
}
#endif
#endif
