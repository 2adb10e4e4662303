"""Workers that reach the fleet over HTTPS only: what stands between `/v1/work` and the streams.

To the fleet it is a worker like any other; the tools run elsewhere, with whoever has a key. A call goes through these
places, all of them in Redis, so that any server may answer whatever comes next:

    place      consumer of its pending entry       what leads out of it
    waiting    none, or `@returned`                 a poll reads it: fetch.lua, or a waiting XREADGROUP -> offered
    offered    `@offered/{key}/{worker}`            it is acknowledged: begin.lua -> begun
                                                    it is not, for a while: take_back.lua -> waiting, uncounted
                                                    its worker is gone: sweep.lua -> waiting, uncounted
    begun      `@attempt/{key}/{worker}/{nonce}`    its result is stored: settle.lua -> gone
                                                    it is given back: park.lua -> waiting
                                                    its lease lapses: sweep.lua -> waiting, counted

Each attempt is a consumer of its own, so the fence of `settle.lua` tells one attempt from the next, also where one
worker has both. What a worker is given to name a call by (an offer, an attempt) is sealed for its key: it says where
the call is, and nobody has to remember it.
"""
