"""What a worker does with one delivery, on any pool: `performer.py` is the column, the other files are its steps.

A *delivery* is one message of one call, handed to this worker by the broker. It goes through these steps, and each of
them may be the last:

    step      file                       may end the delivery as
    foreign?  delivery/forward.py        passed_on, taken_over   another worker serves the tool, or this version of it
    admit     delivery/admit.py          buried, failed          nobody's call; or one that must not start any more
    claim     delivery/claims.py         buried                  another message of the same call has it
    run       perform/tool_run.py        handed_back, left_open  this worker stops before the tool has ended
                                         taken_over              it was frozen, and another worker has the call
    conclude  perform/conclusion.py      settled, failed, cancelled, taken_over

What the message needs after that is decided by the ending alone (`ToolRequest.on_ended`). On Redis Streams:

    settled, failed, cancelled  nothing: the script that stored the result has acknowledged the message
    taken_over, passed_on       nothing: the message is another worker's
    buried                      an acknowledgement
    handed_back                 it goes back, and this delivery does not count: the tool has done no harm
    left_open, not_performed    it goes back, and this delivery counts: an effect may have begun

A delivery that needs admission, run and conclusion alone goes through `quick_calls.py`, whose steps are the same
functions and end it in the same ways.

(Another broker gets an acknowledgement, a new message for `passed_on`, or a rejection with requeue, which counts.)

A worker process that dies has no ending. Its messages go back and the delivery counts, so that the next worker's
`admit` sees that an effect may have begun. `toolfleet.streams` tells how they go back.

The rules that the order of the steps keeps:

- Nothing in a message is believed before `admit` has checked its signature. (`forward` checks it for itself.)
- A tool whose effect must happen once starts only after its claim is written: a crash after that leaves a trace.
- On Redis Streams a result is stored and its message acknowledged in one script: a crash leaves both or neither done.
- Cancellation ends a tool, never a settlement under way: a call that was given back then could run twice.
"""
