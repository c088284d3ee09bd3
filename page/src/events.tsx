/** What has happened, the newest first. */
import { signal } from "@preact/signals";
import { moment } from "./format";
import { events } from "./state";

const filter = signal("");

export function Events() {
  const word = filter.value.toLowerCase();
  const list = events.value.filter((event) => `${event.kind} ${event.name} ${event.text}`.toLowerCase().includes(word)).slice(0, 200);
  return (
    <>
      <p>
        <label for="which">Filter</label>{" "}
        <input id="which" type="search" value={filter.value} onInput={(event) => { filter.value = event.currentTarget.value; }} />
      </p>
      {list.length === 0 ? <p>Nothing has happened.</p> : (
        <div class="scroll" tabIndex={0} role="group" aria-label="Events">
          <table>
            <thead><tr><th>Time</th><th>Event</th><th>Of</th><th>More</th></tr></thead>
            <tbody>
              {list.map((event) => (
                <tr key={event.id}><td>{moment(event.time)}</td><th scope="row">{event.kind}</th><td>{event.name}</td><td>{event.text}</td></tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
    </>
  );
}
